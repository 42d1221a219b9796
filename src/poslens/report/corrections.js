const reason = document.getElementById("reason");
function tell(cell) {
  for (const shown of document.querySelectorAll(".matrix .shown")) shown.classList.remove("shown");
  cell.classList.add("shown");
  reason.classList.add("told");
  reason.querySelector("h3").textContent = cell.dataset.title;
  reason.querySelector("p").textContent = cell.dataset.reason;
}
for (const cell of document.querySelectorAll(".matrix button")) {
  for (const event of ["mouseenter", "focus", "click"]) cell.addEventListener(event, () => tell(cell));
}
