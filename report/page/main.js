// Which statistic the map shows, and what a choice changes.
const statsOfKind = {
  nonfinite: ['cur_amax', 'nan', 'inf'], format: ['sqnr'], saturation: ['saturated_energy%', 'saturated%'], flush: ['flushed_energy%', 'flushed%'],
  scale_worse_than_recipe: ['sqnr'], rounding_repeats: ['nvfp4_rounding_correlation', 'rounding_correlation'], lost_updates: ['lost_updates%'],
  outlier_channel: ['outlier_row_1_energy%', 'outlier_channel_1_energy%', 'peak_rms'], accumulation: ['error_from_accumulation%'], gradient_noise: ['gradient_noise'],
  scale_too_large: ['saturated_energy%', 'saturated%', 'sqnr'], copies_differ: ['sqnr'], stale_weight: ['sqnr'],
};
const usualStats = ['sqnr', 'saturated_energy%', 'saturated%', 'cur_amax', 'rms'];

const state = {tensor: null, stat: null, layer: null};
const tensorsWithStats = data.tensors.filter((tensor) => statsOf(tensor).length > 0);

const firstChoice = () => {
  const place = cause && cause.places.length ? cause.places[0] : null;
  const tensor = place && tensorsWithStats.includes(place.tensor) ? place.tensor : tensorsWithStats[0];
  const known = statsOf(tensor);
  const wanted = cause ? [cause.series.name, ...(statsOfKind[cause.kind] || [])] : [];
  return {tensor, stat: [...wanted, ...usualStats].find((stat) => known.includes(stat)) || known[0]};
};

const fill = (select, texts, chosen) => {
  select.replaceChildren(...texts.map((text) => make('option', {value: text, text})));
  select.value = chosen;
};

const map = new HeatMap((layer) => openLayer(layer));

const showMap = () => {
  fill(byId('tensor'), tensorsWithStats, state.tensor);
  const known = statsOf(state.tensor);
  if (!known.includes(state.stat)) state.stat = usualStats.find((stat) => known.includes(stat)) || known[0];
  fill(byId('stat'), known, state.stat);
  const plane = planeOf(state.tensor, state.stat);
  map.show(plane, {scale: byId('scale').value, mode: byId('mode').value, rows: byId('rows').value, filter: byId('filter').value});
  const width = 2 ** plane.shift;
  byId('map_note').textContent = `${state.stat} of ${state.tensor}, ${count(map.layers.length)} layers in model order`
    + (width > 1 ? `; a column stands for ${count(width)} iterations, extremes kept` : '')
    + (data.findings.length ? '; diamonds are findings, hollow ones of another tensor' : '');
  map.say(map.at);
  if (byId('table_details').open) showTable(map, openByName);
};

const openLayer = (layer) => {
  state.layer = layer;
  map.opened = layer;
  const row = map.layers.indexOf(layer);
  if (row >= 0) map.at.row = row;
  showDetail(planeOf(state.tensor, state.stat), layer, (stat) => {
    state.stat = stat;
    showMap();
    openLayer(layer);
  });
  map.draw();
};

const openByName = (name, tensor, stat) => {
  if (tensor && tensorsWithStats.includes(tensor)) state.tensor = tensor;
  if (stat && statsOf(state.tensor).includes(stat)) state.stat = stat;
  showMap();
  const layer = layerNumber.get(name);
  if (layer !== undefined) openLayer(layer);
  byId('map').scrollIntoView();
  byId('detail').focus({preventScroll: true});
};

const start = () => {
  showHeader();
  showVerdict();
  showFirstCharts();
  showScalars();
  showAgainst(openByName);
  showFindings(openByName);
  showPlan();
  byId('foot').textContent = 'Made by amaxscope report. Everything is in this file; it asks the network for nothing.';
  if (tensorsWithStats.length === 0) {
    byId('map_note').textContent = 'No statistics were recorded.';
  } else {
    Object.assign(state, firstChoice());
    showMap();
    const blamed = cause && cause.places.length ? layerNumber.get(cause.places[0].layer) : undefined;
    openLayer(blamed !== undefined && map.layers.includes(blamed) ? blamed : map.layers[0]);
    if (since !== null) {
      const unit = 2 ** map.plane.shift;
      const column = map.columns.findIndex((index) => (index + 1) * unit > since);
      map.at.column = column < 0 ? map.columns.length - 1 : column;
    }
    if (map.names) map.scroll.scrollTop = Math.max(map.at.row * map.rowHeight - map.height / 2, 0);
    map.say(map.at);
  }
  const reopen = () => { if (state.layer !== null) openLayer(state.layer); };
  byId('tensor').addEventListener('change', (event) => { state.tensor = event.target.value; showMap(); reopen(); });
  byId('stat').addEventListener('change', (event) => { state.stat = event.target.value; showMap(); reopen(); });
  for (const id of ['scale', 'mode', 'rows']) byId(id).addEventListener('change', showMap);
  byId('filter').addEventListener('input', showMap);
  byId('table_details').addEventListener('toggle', () => { if (byId('table_details').open) showTable(map, openByName); });
  const repaint = () => { redraw(); if (map.plane) map.drawLegend(); };
  new ResizeObserver(repaint).observe(document.querySelector('main'));
  for (const query of Object.values(media)) query.addEventListener('change', repaint);
  redraw();
};
start();
