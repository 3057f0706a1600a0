/**
 * `npm run bench [-- name…]`: prints figures, medians of repeated runs, as ratios against a floor of the same run (docs/performance.md).
 * `npm run bench -- against <commit>` compares two versions of the product instead, and `npm run bench -- automation [row…]` measures some rows
 * of `fairness`.
 */
import { benchAccess } from './access.ts'
import { benchAgainst } from './against.ts'
import { benchAutomation } from './automation.ts'
import { benchBacklog } from './backlog.ts'
import { benchBackup } from './backup.ts'
import { benchBatches } from './batches.ts'
import { benchBulk } from './bulk.ts'
import { benchCapacity } from './capacity.ts'
import { benchCoap } from './coap.ts'
import { benchConsumers } from './consumers.ts'
import { benchDeviceState } from './device-state.ts'
import { benchEdgeWorker } from './edge-worker.ts'
import { benchEffects } from './effects.ts'
import { benchFairness } from './fairness.ts'
import { benchFilters } from './filters.ts'
import { benchFairnessOfRequests } from './fairness-web.ts'
import { benchFirstRuns } from './first-runs.ts'
import { benchFleet } from './fleet.ts'
import { benchHistory } from './history.ts'
import { describeHost, processorTime } from './host.ts'
import { benchIngest } from './ingest.ts'
import { benchJournal } from './journal.ts'
import { benchLanguages } from './languages.ts'
import { benchListing } from './listing.ts'
import { benchLostWorker } from './lost-worker.ts'
import { benchModules } from './modules.ts'
import { benchMqtt } from './mqtt.ts'
import { benchNodes } from './nodes.ts'
import { benchProcesses } from './processes.ts'
import { benchProvision } from './provision.ts'
import { benchReader } from './reader.ts'
import { benchRules } from './rules.ts'
import { benchSandbox } from './sandbox.ts'
import { benchSoak } from './soak.ts'
import { benchStart } from './start.ts'
import { benchStorm } from './storm.ts'
import { benchTaskState } from './task-state.ts'
import { benchTasks } from './tasks.ts'
import { benchTriggers } from './triggers.ts'

const BENCHES = {
  start: benchStart,
  ingest: benchIngest,
  coap: benchCoap,
  mqtt: benchMqtt,
  storm: benchStorm,
  'device-state': benchDeviceState,
  nodes: benchNodes,
  processes: benchProcesses,
  reader: benchReader,
  backup: benchBackup,
  access: benchAccess,
  listing: benchListing,
  bulk: benchBulk,
  journal: benchJournal,
  tasks: benchTasks,
  state: benchTaskState,
  'first-runs': benchFirstRuns,
  fairness: async () => {
    await benchFairness()
    await benchFairnessOfRequests()
    await benchAutomation()
  },
  'fairness-web': benchFairnessOfRequests,
  triggers: benchTriggers,
  filters: benchFilters,
  batches: benchBatches,
  consumers: benchConsumers,
  backlog: benchBacklog,
  'edge-worker': benchEdgeWorker,
  effects: benchEffects,
  fleet: async () => void (await benchFleet([])),
  history: benchHistory,
  'lost-worker': benchLostWorker,
  rules: benchRules,
  sandbox: benchSandbox,
  modules: benchModules,
  languages: benchLanguages,
  provision: benchProvision,
  capacity: benchCapacity,
  soak: benchSoak,
}
/** Long benches: they run only by name. */
const LONG = new Set([
  'backlog',
  'capacity',
  'device-state',
  'edge-worker',
  'effects',
  'filters',
  'history',
  'languages',
  'processes',
  'soak',
])

const wanted = process.argv.slice(2)
if (wanted[0] === 'against') process.exit(await benchAgainst(wanted.slice(1)))
if (wanted[0] === 'fleet') process.exit(await benchFleet(wanted.slice(1)))
if (wanted[0] === 'automation') process.exit(await benchAutomation(wanted.slice(1)))
const unknown = wanted.filter((name) => !(name in BENCHES))
if (unknown.length > 0) {
  process.stderr.write(
    `no bench ${unknown.join(', ')}; there are ${Object.keys(BENCHES).join(', ')}, "against <commit>" and "automation [row…]"\n`,
  )
  process.exit(2)
}
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted.length === 0 ? LONG.has(name) : !wanted.includes(name)) continue
  const before = processorTime()
  await bench()
  process.stdout.write(describeHost(before, processorTime()))
}
