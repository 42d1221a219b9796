for (const data of document.querySelectorAll("script[data-panel]")) {
  const figure = JSON.parse(data.textContent);
  const settings = { displayModeBar: false, responsive: true };
  Plotly.newPlot(data.dataset.panel, figure.data, figure.layout, settings);
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details.rule")) details.open = true;
});
