// Small things that everything uses. Text goes into the page as text only.
const byId = (id) => document.getElementById(id);

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'text') element.textContent = value;
    else if (name === 'class') element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};

const count = (number) => number.toLocaleString('en-US', {maximumFractionDigits: 0});

const numberText = (value) => {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '−Inf';
  const size = Math.abs(value);
  if (value === 0) return '0';
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString('en-US').replace('-', '−');
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace('e+', 'e').replaceAll('-', '−');
  return String(Number(value.toPrecision(4))).replace('-', '−');
};

const rangeText = (low, high) => {
  if (Object.is(low, high)) return numberText(low);
  return Number.isNaN(high) ? `NaN, and ${numberText(low)} at least` : `${numberText(low)} to ${numberText(high)}`;
};

/** Finite smallest and largest, the smallest above 0, and whether anything is no finite number. */
const extentOf = (list) => {
  const extent = {low: Infinity, high: -Infinity, positive: Infinity, odd: false};
  const see = (value) => {
    if (!Number.isFinite(value)) { extent.odd = true; return; }
    if (value < extent.low) extent.low = value;
    if (value > extent.high) extent.high = value;
    if (value > 0 && value < extent.positive) extent.positive = value;
  };
  for (const values of list) {
    for (let i = 0; i < values.low.length; ++i) { see(values.low[i]); see(values.high[i]); }
  }
  return extent;
};

const wantsLog = (extent, stat) => extent.low >= 0 && extent.high > 30 * extent.positive && !/sqnr|cosine|_id$|_due_steps$|_since$|_tp_rank$/.test(stat);

/** At most `most` round numbers from low to high. */
const ticksOf = (low, high, most) => {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length <= 2 * most; ++i) ticks.push(i * step + 0);  // + 0: no -0
  return ticks;
};

/** The canvas at the size of its place and of the device; null when it is not to be seen. */
const surface = (canvas, height) => {
  const width = canvas.parentElement.clientWidth;
  if (width < 20) return null;
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return {pen, width, height, ratio};
};

/** Drawings that follow the size of the window, the colours and the printer. */
const drawings = new Set();
const drawn = (draw) => { drawings.add(draw); return draw; };
const redraw = () => {
  for (const draw of drawings) {
    if (draw.element && !draw.element.isConnected) drawings.delete(draw);
    else draw();
  }
};

/** The text, with what stands between backquotes as code. */
const withCode = (text) => text.split('`').map((part, i) => (i % 2 ? make('code', {text: part}) : part));

const copyText = async (text, button) => {
  let copied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make('textarea', {'aria-hidden': 'true'});
    area.value = text;
    document.body.append(area);
    area.select();
    copied = document.execCommand('copy');
    area.remove();
    button.focus();
  }
  const before = button.textContent;
  button.textContent = copied ? 'Copied' : 'Select and copy by hand';
  button.classList.toggle('done', copied);
  setTimeout(() => { button.textContent = before; button.classList.remove('done'); }, 1800);
};
