// A line over iterations: what a bucket has from its smallest to its largest value is filled.
let cursor = null;  // the iteration that all charts point at
const pointAt = (iteration) => { cursor = iteration; for (const chart of charts) if (chart.figure.isConnected) chart.draw(); else charts.delete(chart); };
const charts = new Set();

class Chart {
  /** lines: [{label, values, colour, other (of the run beside this one)}]. Options: title, height, log, quiet (no axis),
      parted (an iteration to mark). */
  constructor(lines, options) {
    Object.assign(this, {lines, options});
    this.canvas = make('canvas', {role: 'img', 'aria-label': this.summary()});
    if (!options.quiet) this.canvas.tabIndex = 0;
    this.said = make('span');
    this.figure = make('figure', {class: 'chart'}, make('figcaption', {}, make('b', {text: options.title}), this.said), this.canvas);
    if (options.quiet) this.figure = this.canvas;
    this.extent = extentOf(lines.map((line) => line.values));
    this.log = options.log !== undefined ? options.log : wantsLog(this.extent, options.title);
    if (this.log && !(this.extent.positive < Infinity)) this.log = false;
    const draw = drawn(() => this.draw());
    draw.element = this.figure;
    if (options.quiet) return;
    charts.add(this);
    this.canvas.addEventListener('pointermove', (event) => pointAt(this.iterationAt(event.offsetX)));
    this.canvas.addEventListener('pointerleave', () => pointAt(null));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
  }
  summary() {
    return this.lines.map(({label, values}) => {
      if (values.index.length === 0) return `${label}: nothing`;
      const extent = extentOf([values]);
      const end = values.index.length - 1;
      return `${label} over iterations ${count(firstOf(values, 0))} to ${count(lastOf(values, end))}: begins at ${numberText(values.low[0])}, `
        + `ends at ${numberText(values.high[end])}, smallest ${numberText(extent.low)}, largest ${numberText(extent.high)}`
        + (extent.odd ? ', with NaN or infinity' : '');
    }).join('; ');
  }
  key(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    const {values} = this.lines[0];
    if (step === undefined || values.index.length === 0) return;
    const at = cursor === null ? -1 : this.nearest(values, cursor);
    pointAt(firstOf(values, Math.min(Math.max(at + step, 0), values.index.length - 1)));
    event.preventDefault();
  }
  nearest(values, iteration) {
    let low = 0;
    let high = values.index.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lastOf(values, middle) < iteration) low = middle + 1; else high = middle;
    }
    return low > 0 && iteration - lastOf(values, low - 1) < firstOf(values, low) - iteration ? low - 1 : low;
  }
  iterationAt(x) { return this.x0 + (x - this.left) / (this.right - this.left) * (this.x1 - this.x0); }
  draw() {
    const {options, lines} = this;
    const place = surface(this.canvas, options.height);
    if (!place) return;
    const {pen, width, height} = place;
    const colour = colours();
    const quiet = Boolean(options.quiet);
    [this.left, this.right] = quiet ? [2, width - 2] : [52, width - 8];
    const [top, bottom] = quiet ? [2, height - 2] : [8, height - 18];
    const filled = lines.filter((line) => line.values.index.length > 0);
    if (filled.length === 0) return;
    this.x0 = Math.min(...filled.map(({values}) => firstOf(values, 0)));
    this.x1 = Math.max(...filled.map(({values}) => lastOf(values, values.index.length - 1)));
    if (this.x1 <= this.x0) this.x1 = this.x0 + 1;
    let {low, high} = this.extent;
    if (!(low <= high)) [low, high] = [0, 1];
    const scaled = (value) => (this.log ? Math.log10(Math.max(value, this.extent.positive)) : value);
    let [y0, y1] = [scaled(low), scaled(high)];
    if (y1 <= y0) { const pad = Math.abs(y0) * 0.1 || 1; y0 -= pad; y1 += pad; }
    const x = (iteration) => this.left + (iteration - this.x0) / (this.x1 - this.x0) * (this.right - this.left);
    const y = (value) => {
      if (value === Infinity) return top;
      if (value === -Infinity) return bottom;
      return bottom - (scaled(value) - y0) / (y1 - y0) * (bottom - top);
    };
    pen.clearRect(0, 0, width, height);
    pen.font = `11px ${style('--text')}`;
    if (!quiet) this.drawAxes(pen, colour, {x, y, y0, y1, top, bottom, width});
    for (const line of filled) this.drawLine(pen, colour, line, {x, y, top});
    const mark = (iteration, ink, dash) => {
      if (iteration === null || iteration < this.x0 || iteration > this.x1) return;
      pen.strokeStyle = ink;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(x(iteration), top - 4);
      pen.lineTo(x(iteration), bottom);
      pen.stroke();
      pen.setLineDash([]);
    };
    pen.lineWidth = 1;
    mark(since, colour.fault, [4, 3]);
    if (options.parted !== undefined) mark(options.parted, colour.other, [1, 3]);
    if (!quiet) { mark(cursor, colour.soft, []); this.say(filled); }
  }
  say(filled) {
    const {values} = filled[0];
    if (cursor === null) {
      const end = values.index.length - 1;
      this.said.textContent = `last ${rangeText(values.low[end], values.high[end])}`;
      return;
    }
    const at = this.nearest(values, cursor);
    this.said.textContent = `${spanText(firstOf(values, at), 2 ** values.shift)}: ${rangeText(values.low[at], values.high[at])}`;
  }
  drawAxes(pen, colour, {x, y, y0, y1, top, bottom, width}) {
    pen.fillStyle = colour.soft;
    pen.strokeStyle = colour.line;
    pen.lineWidth = 1;
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    let ticks = ticksOf(y0, y1, Math.max(3, Math.floor((bottom - top) / 26)));
    if (this.log) {
      const whole = ticks.filter((tick) => Number.isInteger(tick));
      ticks = (whole.length >= 2 ? whole : [y0, y1]).map((tick) => 10 ** tick);
    }
    for (const tick of ticks) {
      const at = Math.round(y(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(this.left, at);
      pen.lineTo(this.right, at);
      pen.stroke();
      pen.fillText(numberText(Number(tick.toPrecision(6))), this.left - 6, at);
    }
    pen.textBaseline = 'top';
    for (const tick of ticksOf(this.x0, this.x1, Math.max(2, Math.floor(width / 110)))) {
      pen.textAlign = x(tick) > this.right - 24 ? 'right' : x(tick) < this.left + 10 ? 'left' : 'center';
      pen.fillText(count(tick), x(tick), bottom + 5);
    }
  }
  drawLine(pen, colour, {values, colour: own, other}, {x, y, top}) {
    const ink = own || (other ? colour.other : colour.accent);
    const {index, low, high} = values;
    const middle = (i) => x((firstOf(values, i) + lastOf(values, i)) / 2);
    pen.lineJoin = 'round';
    pen.strokeStyle = ink;
    pen.fillStyle = ink;
    if (low !== high) {
      pen.globalAlpha = 0.25;
      for (let i = 0; i < index.length; ++i) {
        if (!Number.isFinite(low[i]) || !Number.isFinite(high[i])) continue;
        const left = x(firstOf(values, i));
        pen.fillRect(left, y(high[i]), Math.max(x(lastOf(values, i) + 1) - left, 1), Math.max(y(low[i]) - y(high[i]), 1));
      }
      pen.globalAlpha = 1;
    }
    for (const side of low === high ? [low] : [low, high]) {
      pen.lineWidth = low === high ? 1.5 : 1;
      pen.beginPath();
      let open = false;
      for (let i = 0; i < index.length; ++i) {
        if (!Number.isFinite(side[i])) { open = false; continue; }
        if (open) pen.lineTo(middle(i), y(side[i])); else pen.moveTo(middle(i), y(side[i]));
        open = true;
      }
      pen.stroke();
    }
    if (index.length === 1 && Number.isFinite(low[0])) pen.fillRect(middle(0) - 2, y(high[0]) - 2, 4, Math.max(y(low[0]) - y(high[0]), 0) + 4);
    // What is no finite number lies along the upper edge, with its name where there is room.
    pen.fillStyle = colour.fault;
    pen.font = `11px ${style('--text')}`;
    pen.textAlign = 'left';
    pen.textBaseline = 'top';
    for (let i = 0; i < index.length;) {
      let end = i;
      while (end < index.length && !Number.isFinite(high[end])) ++end;
      if (end > i) {
        const left = x(firstOf(values, i)) - 1;
        const right = Math.max(middle(end - 1) + 1, left + 3);
        pen.fillRect(left, top - 1, right - left, 3);
        if (right - left > 50 && !this.options.quiet) pen.fillText(numberText(high[i]), left + 5, top + 5);
      }
      i = Math.max(end, i + 1);
    }
  }
}
