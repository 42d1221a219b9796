function draw(data) {
  const figure = JSON.parse(data.textContent);
  const settings = { displayModeBar: false, responsive: true };
  Plotly.newPlot(data.dataset.panel, figure.data, figure.layout, settings);
}
// A panel in a closed details element has no width yet: it is drawn when that opens.
for (const data of document.querySelectorAll("script[data-panel]")) {
  if (!data.closest("details")) draw(data);
}
for (const details of document.querySelectorAll("details:has(.panel)")) {
  details.addEventListener("toggle", () => {
    for (const data of details.querySelectorAll("script[data-panel]")) draw(data);
  }, { once: true });
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details.rule")) details.open = true;
});
