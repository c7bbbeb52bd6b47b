// The map: a row for each layer, iterations from left to right. Only what is to be seen is drawn; where rows or iterations
// are more than pixels, a pixel shows the worst of what it stands for.
const shortNames = (names) => {
  // What most names begin with says nothing: "decoder.layers.".
  const parts = (name) => name.split('.');
  const counts = new Map();
  for (const name of names) {
    const begin = parts(name).slice(0, 2).join('.');
    if (parts(name).length > 2) counts.set(begin, (counts.get(begin) || 0) + 1);
  }
  const [common, times] = [...counts].sort((a, b) => b[1] - a[1])[0] || ['', 0];
  return times * 2 > names.length ? names.map((name) => (name.startsWith(`${common}.`) ? name.slice(common.length + 1) : name)) : names;
};
const shortName = shortNames(data.layers);

class HeatMap {
  constructor(onOpen) {
    this.onOpen = onOpen;
    [this.canvas, this.scroll, this.space] = [byId('heat'), byId('heat_scroll'), byId('heat_space')];
    this.at = {row: 0, column: 0};
    this.opened = null;
    this.canvas.addEventListener('pointermove', (event) => this.point(event, false));
    this.canvas.addEventListener('pointerleave', () => { this.hover = null; this.draw(false); this.say(this.at); pointAt(null); });
    this.canvas.addEventListener('click', (event) => this.point(event, true));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('focus', () => { this.draw(false); this.say(this.at); });
    this.canvas.addEventListener('blur', () => this.draw(false));
    this.scroll.addEventListener('scroll', () => this.draw());
    drawn(() => this.layOut());
  }

  /** Shows a plane. choices: {scale, mode, rows, filter} as the controls have them. */
  show(plane, choices) {
    this.plane = plane;
    this.choices = choices;
    const wanted = choices.filter.toLowerCase();
    this.layers = plane.layers.filter((layer) => data.layers[layer].toLowerCase().includes(wanted));
    this.mode = choices.mode !== 'auto' ? choices.mode : isWorseWhenSmall(plane.stat) ? 'low' : 'high';
    // What stands out is what is worse: of a signal-to-noise ratio the small values.
    this.flipped = isWorseWhenSmall(plane.stat);
    const all = this.layers.map((layer) => plane.values(layer));
    this.extent = extentOf(all);
    this.signed = this.extent.low < 0 && this.extent.high > 0;
    this.log = choices.scale === 'log' || (choices.scale === 'auto' && wantsLog(this.extent, plane.stat));
    if (!(this.extent.low >= 0) || this.extent.positive === Infinity) this.log = false;
    const indices = new Set();
    for (const axis of new Set(all.map((values) => values.axis))) for (const index of data.axes[axis]) indices.add(index);
    this.columns = [...indices].sort((a, b) => a - b);
    this.columnOf = new Map(this.columns.map((index, i) => [index, i]));
    const gaps = this.columns.slice(1).map((index, i) => index - this.columns[i]).sort((a, b) => a - b);
    this.gap = gaps.length ? gaps[gaps.length >> 1] : 1;
    this.findings = new Map();
    for (const finding of data.findings) {
      const layer = layerNumber.get(finding.layer);
      if (layer !== undefined) this.findings.set(layer, [...(this.findings.get(layer) || []), finding]);
    }
    this.at = {row: Math.min(this.at.row, Math.max(this.layers.length - 1, 0)), column: Math.min(this.at.column, Math.max(this.columns.length - 1, 0))};
    this.layOut();
    this.drawLegend();
    this.canvas.setAttribute('aria-label', `${plane.stat} of ${plane.tensor}, ${count(this.layers.length)} layers by ${count(this.columns.length)} columns of iterations`);
  }

  layOut() {
    if (!this.plane) return;
    const rows = this.layers.length;
    this.height = Math.min(Math.max(window.innerHeight * 0.62, 260), 640);
    const fits = rows * 15 <= this.height;
    this.names = this.choices.rows === 'names' || (this.choices.rows === 'auto' && fits);
    this.top = 16;
    this.bottom = 18;
    const room = this.height - this.top - this.bottom;
    if (this.names) {
      this.rowHeight = fits ? Math.min(Math.max(room / Math.max(rows, 1), 15), 22) : 16;
      this.height = Math.min(this.height, Math.round(rows * this.rowHeight) + this.top + this.bottom);
    } else {
      this.rowHeight = room / Math.max(rows, 1);
    }
    this.scroll.style.height = `${this.height}px`;
    const total = Math.round(rows * this.rowHeight) + this.top + this.bottom;
    this.space.style.height = `${this.names ? Math.max(total - this.height, 0) : 0}px`;
    this.draw();
  }

  get firstRow() { return this.names ? this.scroll.scrollTop / this.rowHeight : 0; }
  yOf(row) { return this.top + (row - this.firstRow) * this.rowHeight; }
  xOf(index) { return this.left + (index - this.i0) / (this.i1 - this.i0) * (this.right - this.left); }

  /** 0 to 1, or NaN for a value without a place on the ramp. */
  place(value) {
    const {low, high, positive} = this.extent;
    if (value === Infinity) return 1;
    if (value === -Infinity) return 0;
    if (this.signed && !this.log) { const size = Math.max(-low, high); return (value / size + 1) / 2; }
    if (this.log) return high > positive ? Math.log(Math.max(value, positive) / positive) / Math.log(high / positive) : 0.5;
    return high > low ? (value - low) / (high - low) : 0.5;
  }
  bytesOf(value, colour) {
    if (Number.isNaN(value) || (!Number.isFinite(value) && this.mode === 'high')) return colour.fault_bytes;
    if (this.log && value === 0) return colour.zero_bytes;
    const place = Math.min(Math.max(this.place(value), 0), 1);
    if (this.signed && !this.log) return colour.two_sided[Math.round(255 * place)];
    return colour.ramp[Math.round(255 * (this.flipped ? 1 - place : place))];
  }

  /** afresh: the cells too; they stay as they are when only what lies over them moves. */
  draw(afresh = true) {
    if (afresh) this.image = null;
    if (!this.plane || !this.columns.length) { this.canvas.width = 0; return; }
    const place = surface(this.canvas, this.height);
    if (!place) return;
    const {pen, width, ratio} = place;
    const colour = colours();
    pen.font = `11px ${style('--mono')}`;
    pen.clearRect(0, 0, width, this.height);
    const shown = this.layers.slice(0, 400).map((layer) => pen.measureText(shortName[layer]).width);
    this.left = Math.min(Math.max(...shown, 60) + 10, width * 0.34, 260);
    this.right = width - 6;
    this.i0 = this.columns[0];
    this.i1 = this.columns[this.columns.length - 1] + Math.max(this.gap, 1);
    this.drawCells(pen, colour, ratio);
    this.drawLabels(pen, colour);
    this.drawAxis(pen, colour, width);
    this.drawMarks(pen, colour);
  }

  drawCells(pen, colour, ratio) {
    const x0 = Math.round(this.left * ratio);
    const wide = Math.max(Math.round(this.right * ratio) - x0, 1);
    const y0 = Math.round(this.top * ratio);
    const tall = Math.max(Math.round((this.height - this.bottom) * ratio) - y0, 1);
    if (this.image) { pen.putImageData(this.image, x0, y0); return; }
    const image = this.image = pen.createImageData(wide, tall);
    const edges = this.columns.map((index) => Math.round((this.xOf(index) - this.left) * ratio));
    const ends = this.columns.map((index, i) => {
      const next = i + 1 < this.columns.length ? this.columns[i + 1] : this.i1;
      const end = Math.min(next, index + 4 * Math.max(this.gap, 1));
      return Math.max(Math.round((this.xOf(end) - this.left) * ratio), edges[i] + 1);
    });
    const gutter = this.rowHeight >= 12 ? Math.max(Math.round(ratio), 1) : 0;
    const low = this.mode === 'low';
    const worst = new Float64Array(wide);
    const seen = new Uint8Array(wide);
    const first = Math.max(Math.floor(this.firstRow), 0);
    const last = Math.min(this.layers.length, Math.ceil(this.firstRow + tall / ratio / this.rowHeight));
    const rowTop = (row) => Math.round(this.yOf(row) * ratio) - y0;
    for (let row = first; row < last;) {
      // Rows thinner than a pixel share it.
      let end = row + 1;
      while (end < last && rowTop(end) <= rowTop(row)) ++end;
      seen.fill(0);
      for (let each = row; each < end; ++each) {
        const values = this.plane.values(this.layers[each]);
        const side = low ? values.low : values.high;
        for (let i = 0; i < values.index.length; ++i) {
          const column = this.columnOf.get(values.index[i]);
          // A NaN anywhere in the bucket is the worst there is.
          const value = Number.isNaN(values.high[i]) ? NaN : side[i];
          for (let x = edges[column]; x < Math.min(ends[column], wide); ++x) {
            if (!seen[x] || Number.isNaN(value) || (low ? value < worst[x] : value > worst[x])) worst[x] = value;
            seen[x] = 1;
          }
        }
      }
      const from = Math.max(rowTop(row), 0);
      const to = Math.min(Math.max(rowTop(end) - gutter, from + 1), tall);
      for (let x = 0; x < wide && from < to; ++x) {
        const [r, g, b] = seen[x] ? this.bytesOf(worst[x], colour) : colour.missing_bytes;
        for (let y = from; y < to; ++y) {
          const at = 4 * (y * wide + x);
          image.data[at] = r; image.data[at + 1] = g; image.data[at + 2] = b; image.data[at + 3] = 255;
        }
      }
      row = end;
    }
    pen.putImageData(image, x0, y0);
  }

  drawLabels(pen, colour) {
    const bottom = this.height - this.bottom;
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    const step = Math.max(1, Math.ceil(16 / this.rowHeight));
    const label = (row) => {
      const layer = this.layers[row];
      const y = this.yOf(row) + this.rowHeight / 2;
      if (y < this.top - 2 || y > bottom + 2) return;
      const blamed = cause && cause.places.some((where) => where.layer === data.layers[layer]);
      pen.fillStyle = blamed ? colour.fault : layer === this.opened ? colour.ink : colour.soft;
      pen.font = `${layer === this.opened || blamed ? '600 ' : ''}11px ${style('--mono')}`;
      let text = shortName[layer];
      const room = this.left - 10;
      const width = pen.measureText(text).width;
      if (width > room) { const keep = Math.max(Math.floor(text.length * room / width) - 1, 1); text = `…${text.slice(text.length - keep)}`; }
      pen.fillText(text, this.left - 7, Math.min(Math.max(y, this.top + 4), bottom - 4));
    };
    const first = Math.max(Math.floor(this.firstRow), 0);
    const last = Math.min(this.layers.length, Math.ceil(this.firstRow + bottom / this.rowHeight));
    const special = new Set();
    for (let row = first; row < last; ++row) {
      const layer = this.layers[row];
      if (step > 1 && (layer === this.opened || (cause && cause.places.length > 0 && cause.places[0].layer === data.layers[layer]))) special.add(row);
    }
    for (let row = first; row < last; row += step) {
      if (![...special].some((other) => other !== row && Math.abs(other - row) < step)) label(row);
    }
    for (const row of special) label(row);
  }

  drawAxis(pen, colour, width) {
    const unit = 2 ** this.plane.shift;
    pen.font = `11px ${style('--text')}`;
    pen.fillStyle = colour.soft;
    pen.textBaseline = 'top';
    for (const tick of ticksOf(this.i0 * unit, (this.i1 - 1) * unit, Math.max(2, Math.floor((this.right - this.left) / 90)))) {
      const x = this.xOf(tick / unit);
      pen.textAlign = x > width - 30 ? 'right' : x < this.left + 12 ? 'left' : 'center';
      pen.fillText(count(tick), x, this.height - this.bottom + 5);
    }
  }

  drawMarks(pen, colour) {
    const unit = 2 ** this.plane.shift;
    const bottom = this.height - this.bottom;
    if (since !== null && since / unit >= this.i0 && since / unit <= this.i1) {
      const x = this.xOf(since / unit);
      pen.strokeStyle = colour.fault;
      pen.lineWidth = 1.5;
      pen.setLineDash([5, 3]);
      pen.beginPath();
      pen.moveTo(x, this.top - 4);
      pen.lineTo(x, bottom);
      pen.stroke();
      pen.setLineDash([]);
      pen.fillStyle = colour.fault;
      pen.font = `600 11px ${style('--text')}`;
      pen.textBaseline = 'top';
      pen.textAlign = x > this.right - 60 ? 'right' : 'left';
      pen.fillText(`since ${count(since)}`, x + (x > this.right - 60 ? -5 : -1), 0);
    }
    this.layers.forEach((layer, row) => {
      const y = this.yOf(row) + this.rowHeight / 2;
      if (y < this.top || y > bottom) return;
      for (const finding of this.findings.get(layer) || []) {
        const x = this.xOf(finding.iteration / unit);
        if (x < this.left || x > this.right + 2) continue;
        const size = Math.min(Math.max(this.rowHeight * 0.32, 3), 5);
        pen.beginPath();
        pen.moveTo(x, y - size);
        pen.lineTo(x + size, y);
        pen.lineTo(x, y + size);
        pen.lineTo(x - size, y);
        pen.closePath();
        pen.fillStyle = finding.tensor === this.plane.tensor ? colour.fault : colour.card;
        pen.strokeStyle = finding.tensor === this.plane.tensor ? colour.card : colour.fault;
        pen.lineWidth = 1.25;
        pen.fill();
        pen.stroke();
      }
      if (layer === this.opened && this.rowHeight < 5) {
        // An outline would hide a row so thin: two arrows point at it.
        pen.fillStyle = colour.ink;
        for (const [edge, way] of [[this.left, -6], [this.right, 6]]) {
          pen.beginPath();
          pen.moveTo(edge, y);
          pen.lineTo(edge + way, y - 4);
          pen.lineTo(edge + way, y + 4);
          pen.fill();
        }
      } else if (layer === this.opened) {
        pen.strokeStyle = colour.ink;
        pen.lineWidth = 1.25;
        pen.strokeRect(this.left - 0.5, this.yOf(row) - 0.5, this.right - this.left + 1, Math.max(this.rowHeight, 3));
      }
    });
    const spot = this.hover || (document.activeElement === this.canvas ? this.at : null);
    if (!spot || !this.layers.length) return;
    const index = this.columns[spot.column];
    pen.strokeStyle = colour.ink;
    pen.lineWidth = 2;
    pen.strokeRect(this.xOf(index) - 1, this.yOf(spot.row) - 1, Math.max(this.xOf(index + Math.max(this.gap, 1)) - this.xOf(index), 4) + 1, Math.max(this.rowHeight, 4) + 1);
  }

  drawLegend() {
    const canvas = byId('legend');
    const colour = colours();
    const [width, height] = [330, 30];
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    Object.assign(canvas, {width: width * ratio, height: height * ratio});
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext('2d');
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const {low, high, positive} = this.extent;
    if (!(low <= high)) { canvas.setAttribute('aria-label', 'no finite value'); return; }
    const size = Math.max(-low, high);
    const [from, to] = this.log ? [positive, high] : this.signed ? [-size, size] : [low, high];
    const ramp = this.signed && !this.log ? colour.two_sided : colour.ramp;
    const begin = 34;
    const wide = 190;
    for (let x = 0; x < wide; ++x) {
      const place = x / (wide - 1);
      pen.fillStyle = `rgb(${ramp[Math.round(255 * (this.flipped && ramp === colour.ramp ? 1 - place : place))]})`;
      pen.fillRect(begin + x, 2, 1, 10);
    }
    pen.font = `11px ${style('--text')}`;
    pen.fillStyle = colour.soft;
    pen.textBaseline = 'top';
    const middle = this.log ? Math.sqrt(from * to) : (from + to) / 2;
    [[from, begin, 'left'], [middle, begin + wide / 2, 'center'], [to, begin + wide, 'right']].forEach(([value, x, align]) => {
      pen.textAlign = align;
      pen.fillText(numberText(value), x, 16);
    });
    pen.textAlign = 'left';
    const box = (x, bytes, text) => {
      pen.fillStyle = `rgb(${bytes})`;
      pen.fillRect(x, 2, 14, 10);
      pen.strokeStyle = colour.line;
      pen.strokeRect(x + 0.5, 2.5, 13, 9);
      pen.fillStyle = colour.soft;
      pen.fillText(text, x, 16);
    };
    if (this.log && low === 0) box(6, colour.zero_bytes, '0');
    if (this.extent.odd) box(begin + wide + 22, colour.fault_bytes, 'NaN, Inf');
    canvas.setAttribute('aria-label', `Colours from ${numberText(from)} to ${numberText(to)}, ${this.log ? 'logarithmic' : 'linear'}`);
  }

  point(event, open) {
    if (!this.plane || !this.layers.length) return;
    const row = Math.floor(this.firstRow + (event.offsetY - this.top) / this.rowHeight);
    if (row < 0 || row >= this.layers.length) return;
    const index = this.i0 + (event.offsetX - this.left) / (this.right - this.left) * (this.i1 - this.i0);
    let column = 0;
    while (column + 1 < this.columns.length && this.columns[column + 1] <= index) ++column;
    this.hover = {row, column};
    if (open) { this.at = {row, column}; this.open(row); }
    this.say(this.hover);
    this.draw(false);
    pointAt(this.columns[column] * 2 ** this.plane.shift);
  }

  open(row) {
    this.opened = this.layers[row];
    this.onOpen(this.opened);
  }

  key(event) {
    const page = 10;
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-page, 0],
                   PageDown: [page, 0], Home: [0, -Infinity], End: [0, Infinity]};
    if (!this.layers || !this.layers.length) return;
    if (event.key === 'Enter' || event.key === ' ') {
      this.open(this.at.row);
    } else if (moves[event.key]) {
      const [down, right] = moves[event.key];
      const within = (value, most) => Math.min(Math.max(value, 0), most);
      this.at = {row: within(this.at.row + down, this.layers.length - 1), column: within(this.at.column + right, this.columns.length - 1)};
      this.hover = null;
      if (this.names) {
        const y = this.at.row * this.rowHeight;
        const room = this.height - this.top - this.bottom - this.rowHeight;
        const before = this.scroll.scrollTop;
        if (y < before) this.scroll.scrollTop = y;
        if (y > before + room) this.scroll.scrollTop = y - room;
        if (this.scroll.scrollTop !== before) this.image = null;
      }
      this.say(this.at);
      this.draw(false);
      pointAt(this.columns[this.at.column] * 2 ** this.plane.shift);
    } else {
      return;
    }
    event.preventDefault();
  }

  say({row, column}) {
    const layer = this.layers[row];
    const readout = byId('readout');
    readout.replaceChildren();
    if (layer === undefined) return;
    const values = this.plane.values(layer);
    const index = this.columns[column];
    const i = values.index.indexOf(index);
    const when = spanText(index * 2 ** values.shift, 2 ** values.shift);
    const shown = i < 0 ? 'not measured' : rangeText(values.low[i], values.high[i]);
    readout.append(make('b', {text: shown}), ` ${this.plane.stat} of ${this.plane.tensor}, ${when}`, make('br'), data.layers[layer]);
    const found = (this.findings.get(layer) || []).filter((finding) => Math.floor(finding.iteration / 2 ** values.shift) === index);
    for (const finding of found) readout.append(make('br'), `${finding.check}, ${finding.tensor}: ${finding.what}`);
  }
}
