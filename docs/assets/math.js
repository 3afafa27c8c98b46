// Typeset every formula that pymdownx.arithmatex marked. KaTeX is a local file: the site needs no network.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const marked = element.textContent.trim(); // \( inline \) or \[ display \]
    katex.render(marked.slice(2, -2), element, {
      displayMode: marked.startsWith("\\["),
      throwOnError: false,
    });
  }
});
