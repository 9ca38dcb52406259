"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  // Okabe and Ito's hues, each dark or light enough to stand out from the page (3:1 at least).
  const palettes = {
    light: ["#0072b2", "#c24e00", "#00795a", "#8a5d00", "#a8447f", "#5b4bb0"],
    dark: ["#56b4e9", "#ff8c42", "#2fc79a", "#e6b422", "#e39ac4", "#a99cf0"]
  };
  let printing = false;

  function isDark() {
    if (printing) return false;
    return root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
  }

  function resolve(name) {
    const found = /^@(\w+)(?:\/(\d+))?$/.exec(name);
    if (!found) return name;
    const palette = palettes[isDark() ? "dark" : "light"];
    const hex = /^\d+$/.test(found[1]) ? palette[Number(found[1])] : getComputedStyle(root).getPropertyValue("--" + found[1]).trim();
    if (!found[2]) return hex;
    const part = start => parseInt(hex.slice(start, start + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${Number(found[2]) / 100})`;
  }

  function painted(value, key) {
    if (Array.isArray(value)) return value.map(item => painted(item, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, painted(item, name)]));
    }
    return typeof value === "string" && /color$/.test(key || "") ? resolve(value) : value;
  }

  function layoutOf(figure) {
    const layout = painted(figure.layout);
    const line = resolve("@line");
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, fixedrange: true };
    const small = narrow.matches && !printing;
    // A long title breaks before what it says in brackets.
    const titled = own => small && own.title ? { title: { text: own.title.text.replace(" (", "<br>(") } } : {};
    return Object.assign({}, layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: resolve("@ink"), family: "system-ui, sans-serif", size: small ? 12 : 13 },
      margin: { l: small ? 45 : 60, r: small ? 12 : 24, t: 12, b: 50 }, autosize: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      hoverlabel: { bgcolor: resolve("@card"), bordercolor: line, font: { color: resolve("@ink") } }
    }, Object.fromEntries(Object.entries({ xaxis: {}, yaxis: {}, ...layout })
      .filter(([name]) => /^[xy]axis\d?$/.test(name)).map(([name, own]) => [name, Object.assign({}, axis, own, titled(own))])));
  }

  function draw(figure) {
    return Plotly.react("chart-" + figure.key, painted(figure.data), layoutOf(figure), { responsive: true, displayModeBar: false });
  }

  function drawAll() { figures.forEach(draw); }

  document.querySelectorAll("button[data-chart]").forEach(button => button.addEventListener("click", () => {
    const figure = figures.find(item => item.key === button.dataset.chart);
    Object.assign(figure.layout, figure.layouts[button.dataset.layout]);
    button.parentElement.querySelectorAll("button").forEach(other => other.setAttribute("aria-pressed", String(other === button)));
    draw(figure);
  }));
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    drawAll();
  });
  prefersDark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);

  // On paper: light, as wide as the sheet, and with everything unfolded.
  let themed, folded;
  addEventListener("beforeprint", () => {
    printing = true;
    themed = root.dataset.theme;
    root.dataset.theme = "light";
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach(item => { item.open = true; });
    drawAll();
    figures.forEach(figure => Plotly.relayout("chart-" + figure.key, { width: 660, height: 260, autosize: false }));
  });
  addEventListener("afterprint", () => {
    printing = false;
    if (themed) root.dataset.theme = themed; else delete root.dataset.theme;
    folded.forEach(item => { item.open = false; });
    drawAll();
  });
  drawAll();
})();
