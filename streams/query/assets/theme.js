// Before the first paint, so that nothing flashes in the other colours.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("banyan-theme");
  } catch {
    // Storage may be forbidden; then the system's choice holds.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
