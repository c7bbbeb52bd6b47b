// The data of the page and how it is read. A bucket i of a series with shift s holds the iterations from i * 2^s on.
const data = JSON.parse(document.getElementById('data').textContent);

const floatsOf = (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
};

/** {axis, index, low, high, shift} of what the file has of a run as axis, low and high (0: the same as low). */
const valuesOf = (run, axis, low, high, shift) => {
  const lows = floatsOf(low);
  return {axis, index: run.axes[axis], low: lows, high: high === 0 ? lows : floatsOf(high), shift};
};

const isHistogram = (stat) => stat.startsWith('histogram_');

class Plane {
  /** run: the data, or those of the run that is shown beside it. */
  constructor(json, run) {
    this.run = run;
    this.tensor = run.tensors[json.tensor];
    this.stat = run.stats[json.stat];
    this.shift = json.shift;
    this.json = json;
    this.places = new Map(json.rows.map((row, i) => [row[0], i]));
    this.decoded = new Map();
  }
  /** The places of the layers in model order that have the statistic. */
  get layers() { return this.json.rows.map((row) => row[0]); }
  values(layer) {
    const at = this.places.get(layer);
    if (at === undefined) return null;
    if (!this.decoded.has(layer)) {
      const [, axis, low, high] = this.json.rows[at];
      this.decoded.set(layer, valuesOf(this.run, axis, low, high, this.shift));
    }
    return this.decoded.get(layer);
  }
  /** [{rank, values}] where groups of ranks have other values, or nothing. */
  ranks(layer) {
    const found = (this.json.ranks || []).find((row) => row[0] === layer);
    return found ? found[1].map(([rank, shift, axis, low, high]) => ({rank, values: valuesOf(this.run, axis, low, high, shift)})) : [];
  }
}

const planesOf = (run) => run.planes.map((json) => new Plane(json, run));
const scalarsOf = (run) => run.scalars.map(([name, shift, axis, low, high]) => ({name, values: valuesOf(run, axis, low, high, shift)}));
const planes = planesOf(data);
const planeOf = (tensor, stat) => planes.find((plane) => plane.tensor === tensor && plane.stat === stat);
const statsOf = (tensor) => planes.filter((plane) => plane.tensor === tensor && !isHistogram(plane.stat)).map((plane) => plane.stat);
const scalars = scalarsOf(data);
const layerNumber = new Map(data.layers.map((name, i) => [name, i]));
const cause = data.verdict.cause;
/** Where the verdict points to; null without a cause. */
const since = cause ? cause.iteration : null;

const firstOf = (values, i) => values.index[i] * 2 ** values.shift;
const lastOf = (values, i) => firstOf(values, i) + 2 ** values.shift - 1;
const spanText = (first, width) => (width === 1 ? `iteration ${count(first)}` : `iterations ${count(first)} to ${count(first + width - 1)}`);

/** Statistics of which the small values are the bad ones. */
const isWorseWhenSmall = (stat) => /sqnr|cosine|headroom|steps_to_saturation|(^|_)min$/.test(stat);
