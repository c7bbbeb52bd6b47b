// The first screen: what is wrong, where, since when.
const outcomeText = {'found': 'Found', 'healthy': 'Nothing found', 'cannot tell': 'Cannot tell', 'not precision': 'Not precision', 'no data': 'No data'};

const parallelText = (run) => Object.entries(run.parallel).filter(([, size]) => size > 1).map(([name, size]) => `${name} ${size}`);

const showHeader = () => {
  const {verdict} = data;
  const run = data.runs[data.runs.length - 1];
  byId('run_id').textContent = verdict.run.run_id || '';
  const pieces = [];
  if (run) {
    pieces.push(`${run.world_size} ${run.world_size === 1 ? 'rank' : 'ranks'}`, ...parallelText(run));
    if (run.options.recipe) pieces.push(`recipe ${run.options.recipe}`);
    if (run.options.preset) pieces.push(`preset ${run.options.preset}`);
  }
  if (verdict.run.last_iteration !== null) pieces.push(`iterations ${count(verdict.run.first_iteration)} to ${count(verdict.run.last_iteration)}`);
  pieces.push(`${count(verdict.records)} records`);
  if (run && run.start) pieces.push(`began ${run.start.slice(0, 16).replace('T', ' ')} UTC`);
  if (run && !run.closed) pieces.push('not closed: it runs still, or was cut off');
  byId('run_line').textContent = pieces.join(' · ');
  document.title = `${outcomeText[verdict.outcome]}: ${verdict.sentence}`;
};

const addPair = (list, name, values, kind) => {
  if (!values.length) return;
  list.append(make('dt', {text: name}), ...values.map((text) => make('dd', {class: kind || ''}, ...withCode(text))));
};

const showFacts = () => {
  if (!cause) return;
  const facts = byId('facts');
  const fact = (name, text, kind) => facts.append(make('div', {}, make('dt', {text: name}), make('dd', {text, class: kind || ''})));
  fact('Since', `iteration ${count(cause.iteration)}${cause.sampled ? ' or just before' : ''}`, 'key');
  const [place] = cause.places;
  if (place && place.layer) {
    fact('Layer', place.layer, 'name');
    fact('Tensor', place.tensor);
    if (cause.places.length > 1) fact('And', `${count(cause.places.length - 1)} more tensors`);
  }
  if (cause.ranks.length) fact('Ranks', cause.ranks.length > 8 ? `${cause.ranks.slice(0, 8).join(', ')} and ${cause.ranks.length - 8} more` : cause.ranks.join(', '));
  if (cause.channel !== null) fact('Channel', String(cause.channel));
  if (cause.gemms.length) fact('GEMM', cause.gemms.join(', '));
  if (cause.phase) fact('Phase', cause.phase);
  fact('Kind', cause.kind);
};

const showVerdict = () => {
  const {verdict} = data;
  byId('verdict').dataset.outcome = verdict.outcome;
  byId('outcome').textContent = outcomeText[verdict.outcome] || verdict.outcome;
  if (cause) byId('confidence').textContent = cause.confidence;
  const sentence = verdict.sentence;
  byId('verdict_sentence').textContent = sentence.charAt(0).toUpperCase() + sentence.slice(1);
  showFacts();
  const reasons = byId('reasons');
  if (cause) {
    addPair(reasons, 'Why', cause.why);
    addPair(reasons, 'Do', cause.actions);
    addPair(reasons, 'Expect', cause.expect ? [cause.expect] : []);
    addPair(reasons, 'Last good', verdict.last_good_state ? [verdict.last_good_state] : []);
    addPair(reasons, 'Also', verdict.also.slice(0, 4).map((other) => `since ${count(other.iteration)}: ${other.sentence}`));
  }
  addPair(reasons, 'Records', recordTrouble());
  if (cause && cause.yaml) {
    byId('paste').hidden = false;
    byId('yaml').textContent = cause.yaml;
    byId('copy_yaml').addEventListener('click', (event) => copyText(cause.yaml, event.currentTarget));
  }
  // Without a cause, what was looked at is what there is to say.
  if (!cause) document.querySelector('.say').append(byId('checked'));
  showMoved();
  const list = (kind, heading, texts) => {
    if (!texts.length) return;
    byId('checked').append(make('div', {class: kind}, make('h3', {text: heading}), make('ul', {}, ...texts.map((text) => make('li', {}, ...withCode(text))))));
  };
  list('clean', 'Checked and clean', verdict.clean);
  list('missing', 'Not measured', verdict.not_measured);
  list('missing', 'Led another way by debugging', verdict.other_paths);
};

const recordTrouble = () => {
  const {run} = data.verdict;
  const trouble = [...run.problems];
  if (run.unreadable_lines > 0) trouble.push(`${count(run.unreadable_lines)} of ${count(run.lines)} lines could not be read; the first is ${run.first_unreadable}`);
  if (data.left_out > 0) trouble.push(`${count(data.left_out)} values did not fit and are left out`);
  return trouble;
};

const showMoved = () => {
  const {moved} = data.verdict;
  if (moved.length < 2) return;
  byId('moved').append(make('ol', {class: 'moved', 'aria-label': 'What moved first'},
    ...moved.slice(0, 7).map((each) => make('li', {}, make('b', {text: count(each.iteration)}), make('span', {text: each.what})))));
};

const otherScalar = (name) => {
  const found = otherScalars.find((each) => each.name === name);
  return found ? found.values : null;
};

const showFirstCharts = () => {
  for (const name of ['loss', 'grad_norm']) {
    const scalar = scalars.find((each) => each.name === name);
    if (scalar) byId('first_charts').append(...chartBeside(name, scalar.values, otherScalar(name), {title: name, height: name === 'loss' ? 150 : 96}));
  }
};

const showScalars = () => {
  for (const {name, values} of scalars) byId('scalars').append(make('div', {}, ...chartBeside(name, values, otherScalar(name), {title: name, height: 110})));
  if (!scalars.length) byId('scalars').append(make('p', {class: 'note', text: 'The run recorded no scalars.'}));
};

const tableOf = (headings, rows, numbers = []) => make('table', {},
  make('thead', {}, make('tr', {}, ...headings.map((text, i) => make('th', {text, scope: 'col', class: numbers.includes(i) ? 'number' : ''})))),
  make('tbody', {}, ...rows.map((cells) => make('tr', {}, ...cells.map((cell, i) => {
    const place = make('td', {class: numbers.includes(i) ? 'number' : typeof cell === 'string' && cell.length < 24 ? 'short' : ''});
    place.append(cell);
    return place;
  })))));

const showFindings = (open) => {
  if (!data.findings.length) return;
  byId('findings_section').hidden = false;
  byId('findings_heading').textContent = `Findings (${count(data.findings_in_all)})`;
  byId('findings').append(tableOf(['Since', 'Check', 'Layer', 'Tensor', 'Ranks', 'What'], data.findings.map((finding) => {
    const button = make('button', {type: 'button', class: 'link', text: finding.layer});
    button.addEventListener('click', () => open(finding.layer, finding.tensor));
    return [count(finding.iteration), finding.check, finding.layer ? button : '', finding.tensor, finding.ranks.slice(0, 16).join(', '), finding.what];
  }), [0]));
};

const showPlan = () => {
  const plan = byId('plan');
  for (const run of data.runs.slice(-4)) {
    const block = (heading, text) => {
      const button = make('button', {type: 'button', text: 'Copy'});
      button.addEventListener('click', () => copyText(text, button));
      plan.append(make('div', {class: 'plan'}, make('div', {class: 'paste_head'}, make('p', {class: 'note', text: heading}), button),
        make('pre', {text, tabindex: '0', 'aria-label': heading})));
    };
    const {config} = run;
    block(`From iteration ${count(run.first_iteration)}: ${config.source || 'no config'}`, config.text || '# no config: nothing was observed');
    for (const change of run.config_changes) block(`From iteration ${count(change.iteration)}: ${change.source}`, change.text);
    const alters = run.alters_numerics.length ? `Alters what is trained: ${run.alters_numerics.join('; ')}.` : 'Only observes: changes nothing that is trained.';
    plan.append(make('p', {class: 'note', text: alters}));
  }
};
