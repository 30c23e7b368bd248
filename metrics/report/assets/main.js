// Which page this is. A page that cannot be drawn says so instead of staying empty.

try {
  if (typeof runPage === "function") runPage(data);
  else if (typeof jobPage === "function") jobPage(data);
  else comparisonPage(data);
} catch (error) {
  document
    .getElementById("app")
    .append(el("main", null, banner("warn", `This report cannot be drawn: ${error.message}`)));
  throw error;
}
