// One step's timeline is shown at a time.
for (const choice of document.querySelectorAll("select[data-steps]")) {
  const show = () => {
    for (const figure of document.querySelectorAll(`[data-of="${choice.dataset.steps}"]`))
      figure.hidden = figure.dataset.step !== choice.value;
  };
  choice.addEventListener("change", show);
  show();
}
