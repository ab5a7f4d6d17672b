// Before the first paint, so that nothing flashes in the other colours. From here on `data-theme` says which colours are shown, and
// `data-theme-chosen` that a reader chose them, so that the system no longer does.
(() => {
  const page = document.documentElement.dataset;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try {
    kept = localStorage.getItem("banyan-theme");
  } catch {
    // Storage may be forbidden; then the system's choice holds.
  }
  if (kept === "light" || kept === "dark") page.themeChosen = "";
  else kept = system.matches ? "dark" : "light";
  page.theme = kept;
  system.addEventListener("change", () => {
    if (!("themeChosen" in page)) page.theme = system.matches ? "dark" : "light";
  });
})();
