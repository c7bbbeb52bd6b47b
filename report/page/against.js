// The run that is shown beside this one (--against): where the two part, and its lines in the charts.
const {against} = data;
const otherPlanes = against ? planesOf(against) : [];
const otherScalars = against ? scalarsOf(against) : [];
const otherLayer = new Map(against ? against.layers.map((name, i) => [name, i]) : []);
/** The iteration at which they part; null when they do not. */
const parted = against && against.diff.first.length ? against.diff.first[0].iteration : null;

const otherValues = (tensor, stat, name) => {
  const plane = otherPlanes.find((each) => each.tensor === tensor && each.stat === stat);
  return plane && otherLayer.has(name) ? plane.values(otherLayer.get(name)) : null;
};

/** Lines of a chart: this run's, and the other's where it has the same. */
const linesBeside = (label, values, other) => (other
  ? [{label: `${label} here`, values}, {label: `${label} there`, values: other, other: true}]
  : [{label, values}]);

const keysOf = (chart) => {
  if (chart.lines.length < 2) return [];
  return [make('ul', {class: 'keys'}, ...['here', `there (${against.name})`].map((text, i) => make('li', {}, make('i', {class: i ? 'there' : 'here'}), text)))];
};

/** A chart of one thing in both runs. */
const chartBeside = (label, values, other, options) => {
  const chart = new Chart(linesBeside(label, values, other), {...options, parted: other ? parted : null});
  return [chart.figure, ...keysOf(chart)];
};

const departuresOf = (list, open) => tableOf(['Iteration', 'Layer', 'Tensor', 'Statistic', 'Here', 'There', 'Apart', 'Tolerance'],
  list.map((each) => {
    const button = make('button', {type: 'button', class: 'link', text: each.layer});
    button.addEventListener('click', () => open(each.layer, each.tensor, each.stat));
    const number = (value) => (typeof value === 'number' ? numberText(value) : String(value));
    return [count(each.iteration), layerNumber.has(each.layer) ? button : each.layer, each.tensor, each.stat,
      number(each.a), number(each.b), number(each.distance), number(each.tolerance)];
  }), [0, 4, 5, 6, 7]);

const showAgainst = (open) => {
  if (!against) return;
  const {diff} = against;
  const place = byId('against');
  byId('against_section').hidden = false;
  byId('against_heading').textContent = `Against ${against.name}`;
  const sentence = diff.sentence.charAt(0).toUpperCase() + diff.sentence.slice(1);
  place.append(make('p', {id: 'against_sentence', text: sentence}));
  if (diff.ratio) place.append(make('p', {class: 'note', text: `${diff.ratio.stats.join(', ')}: there ${numberText(diff.ratio.ratio)} times what it is here, ${diff.ratio.name}`}));
  place.append(make('p', {class: 'note', text: `${count(diff.values)} values of ${count(diff.tensors)} tensors in ${count(diff.iterations)} iterations compared; `
    + `${count(diff.tensors_apart)} tensors are apart, sooner or later; tolerance from ${diff.tolerance_from}`}));
  const block = (heading, ...children) => place.append(make('h3', {text: heading}), make('div', {class: 'scroll_table'}, ...children));
  if (diff.first.length) block('Where they part', departuresOf(diff.first.slice(0, 20), open));
  if (diff.follows.length) block('What follows, in the order in which a step computes', departuresOf(diff.follows, open));
  if (diff.told.length) block('What they were told', tableOf(['What', 'Here', 'There'], diff.told.map((each) => [each.what, each.a, each.b])));
  if (diff.not_compared.length) place.append(make('h3', {text: 'Not compared'}), make('ul', {class: 'plain'}, ...diff.not_compared.map((text) => make('li', {text}))));
};
