// One row of the map, opened: its series, values per rank, histogram, plan and other statistics.
const sectionsOf = (layer) => {
  const run = data.runs[data.runs.length - 1];
  if (!run) return [];
  return Object.entries(run.section_layers).filter(([, layers]) => layers.includes(layer)).map(([section]) => section);
};

const formatText = (layer, tensor) => {
  const found = data.formats.find(([place, number]) => place === layer && data.tensors[number] === tensor);
  if (!found) return '';
  return found[2].map(([iteration, recipe, format]) => `${[recipe, format].filter((text) => text).join(', ') || 'not said'} from iteration ${count(iteration)}`).join('; then ');
};

const showDetail = (plane, layer, choose) => {
  const name = data.layers[layer];
  byId('detail_heading').textContent = `${name} ${plane.tensor}`;
  const sections = sectionsOf(name);
  byId('detail_plan').textContent = [formatText(layer, plane.tensor),
    sections.length ? `sections of the YAML about it: ${sections.join(', ')}` : ''].filter((text) => text).join('. ');
  const place = (id, ...children) => byId(id).replaceChildren(...children);
  const values = plane.values(layer);
  place('detail_series', ...(values ? chartBeside(plane.stat, values, otherValues(plane.tensor, plane.stat, name), {title: plane.stat, height: 150}) : [make('p', {class: 'note', text: `${plane.stat} was not measured here`})]));
  for (const finding of data.findings.filter((each) => each.layer === name).slice(0, 4)) {
    byId('detail_series').append(make('p', {class: 'warn', text: `${finding.check} at ${count(finding.iteration)}, ${finding.tensor}: ${finding.what}`}));
  }
  place('detail_ranks', ...ranksOf(plane, layer));
  place('detail_histogram', ...histogramOf(plane.tensor, layer));
  place('detail_all', ...allOf(plane, layer, choose));
  redraw();
};

const ranksOf = (plane, layer) => {
  const groups = plane.ranks(layer);
  if (!groups.length) return [];
  const lines = groups.map(({rank, values}, i) => ({label: `rank ${rank}`, values, colour: rankColour(i)}));
  const keys = make('ul', {class: 'keys'}, ...lines.map((line) => {
    const key = make('i');
    key.style.background = line.colour;
    return make('li', {}, key, line.label);
  }));
  const rows = groups.map(({rank, values}) => {
    const extent = extentOf([values]);
    const end = values.index.length - 1;
    return [String(rank), numberText(extent.low), numberText(extent.high), rangeText(values.low[end], values.high[end])];
  });
  return [make('h4', {text: 'Values per rank, which differ'}), new Chart(lines, {title: plane.stat, height: 120}).figure, keys,
    tableOf(['First rank of the group', 'Smallest', 'Largest', 'Last'], rows, [0, 1, 2, 3])];
};

const histogramOf = (tensor, layer) => {
  const bins = [];
  for (const plane of planes) {
    const power = /^histogram_2\^(-?\d+)$/.exec(plane.stat);
    const values = plane.tensor === tensor && power ? plane.values(layer) : null;
    if (values) bins.push({power: Number(power[1]), values});
  }
  if (!bins.length) return [];
  bins.sort((a, b) => b.power - a.power);
  const canvas = make('canvas', {role: 'img'});
  const draw = drawn(() => drawHistogram(canvas, bins));
  draw.element = canvas;
  const peak = bins.reduce((best, bin) => (Math.max(...bin.values.high) > Math.max(...best.values.high) ? bin : best));
  canvas.setAttribute('aria-label', `Histogram over iterations: elements between 2^${bins[bins.length - 1].power} and 2^${bins[0].power + 1}, most of them at 2^${peak.power}`);
  return [make('h4', {text: 'How many elements by power of two, over iterations'}), make('div', {}, canvas)];
};

const drawHistogram = (canvas, bins) => {
  const rowHeight = Math.min(Math.max(150 / bins.length, 3), 12);
  const place = surface(canvas, bins.length * rowHeight + 20);
  if (!place) return;
  const {pen, width} = place;
  const colour = colours();
  const shift = Math.max(...bins.map((bin) => bin.values.shift));
  const starts = bins.map(({values}) => (values.index.length ? firstOf(values, 0) : Infinity));
  const ends = bins.map(({values}) => (values.index.length ? lastOf(values, values.index.length - 1) : -Infinity));
  const [x0, x1] = [Math.min(...starts), Math.max(...ends) + 1];
  const most = Math.max(...bins.map(({values}) => values.high.reduce((a, b) => Math.max(a, b), 1)));
  const columns = new Set(bins.flatMap(({values}) => [...values.index].map((index) => index * 2 ** (values.shift - shift))));
  const cell = Math.max((width - 60) / Math.max(columns.size, 1), 1);
  const x = (iteration) => 52 + (iteration - x0) / Math.max(x1 - x0, 1) * (width - 60);
  pen.clearRect(0, 0, width, bins.length * rowHeight + 20);
  pen.fillStyle = `rgb(${colour.missing_bytes})`;
  pen.fillRect(52, 0, width - 60, bins.length * rowHeight);
  bins.forEach(({power, values}, row) => {
    for (let i = 0; i < values.index.length; ++i) {
      if (!(values.high[i] > 0)) continue;
      pen.fillStyle = `rgb(${colour.ramp[Math.round(255 * Math.log(values.high[i] + 1) / Math.log(most + 1))]})`;
      pen.fillRect(x(firstOf(values, i)), row * rowHeight, cell + 0.5, rowHeight);
    }
    if (row % Math.ceil(14 / rowHeight)) return;
    pen.fillStyle = colour.soft;
    pen.font = `11px ${style('--text')}`;
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    pen.fillText(`2^${power}`.replace('-', '−'), 46, row * rowHeight + Math.max(rowHeight / 2, 6));
  });
  pen.fillStyle = colour.soft;
  pen.textBaseline = 'top';
  for (const tick of ticksOf(x0, x1 - 1, 5)) {
    pen.textAlign = x(tick) > width - 30 ? 'right' : x(tick) < 60 ? 'left' : 'center';
    pen.fillText(count(tick), x(tick), bins.length * rowHeight + 5);
  }
};

const allOf = (plane, layer, choose) => {
  const list = make('div', {class: 'sparks'});
  for (const stat of statsOf(plane.tensor)) {
    const values = planeOf(plane.tensor, stat).values(layer);
    if (!values) continue;
    const end = values.index.length - 1;
    const canvas = new Chart([{label: stat, values}], {title: stat, height: 20, quiet: true}).figure;
    const button = make('button', {type: 'button', class: 'spark', 'aria-pressed': String(stat === plane.stat)},
      make('span', {text: stat}), make('span', {}, canvas), make('span', {text: rangeText(values.low[end], values.high[end]).split(' to ').pop()}));
    button.addEventListener('click', () => choose(stat));
    list.append(button);
  }
  return [make('h3', {text: `All statistics of ${data.layers[layer]} ${plane.tensor}, with their last value`}), list];
};

const showTable = (map, open) => {
  const most = 500;
  const rows = map.layers.slice(0, most).map((layer) => {
    const values = map.plane.values(layer);
    const end = values.index.length - 1;
    const where = (list, better) => list.reduce((best, value, i) => (Number.isFinite(value) && (best < 0 || better(value, list[best])) ? i : best), -1);
    const [low, high] = [where(values.low, (a, b) => a < b), where(values.high, (a, b) => a > b)];
    const at = (list, i) => (i < 0 ? '' : `${numberText(list[i])} at ${count(firstOf(values, i))}`);
    const button = make('button', {type: 'button', class: 'link', text: data.layers[layer]});
    button.addEventListener('click', () => open(data.layers[layer]));
    return [button, rangeText(values.low[0], values.high[0]), at(values.low, low), at(values.high, high), rangeText(values.low[end], values.high[end])];
  });
  byId('table_place').replaceChildren(tableOf(['Layer', 'First', 'Smallest', 'Largest', 'Last'], rows, [1, 2, 3, 4]),
    ...(map.layers.length > most ? [make('p', {class: 'note', text: `${count(map.layers.length - most)} more layers: choose among them with the filter.`})] : []));
};
