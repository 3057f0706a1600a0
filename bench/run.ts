/** `npm run bench [-- name…]`: prints figures, medians of repeated runs, as ratios against a floor of the same run (docs/performance.md). */
import { benchAccess } from './access.ts'
import { benchBulk } from './bulk.ts'
import { benchCoap } from './coap.ts'
import { benchFleet } from './fleet.ts'
import { describeHost, processorTime } from './host.ts'
import { benchIngest } from './ingest.ts'
import { benchJournal } from './journal.ts'
import { benchListing } from './listing.ts'
import { benchModules } from './modules.ts'
import { benchMqtt } from './mqtt.ts'
import { benchNodes } from './nodes.ts'
import { benchProvision } from './provision.ts'
import { benchReader } from './reader.ts'
import { benchSandbox } from './sandbox.ts'
import { benchSoak } from './soak.ts'
import { benchStart } from './start.ts'
import { benchTasks } from './tasks.ts'
import { benchTriggers } from './triggers.ts'

const BENCHES = {
  start: benchStart,
  ingest: benchIngest,
  coap: benchCoap,
  mqtt: benchMqtt,
  nodes: benchNodes,
  reader: benchReader,
  access: benchAccess,
  listing: benchListing,
  bulk: benchBulk,
  journal: benchJournal,
  tasks: benchTasks,
  triggers: benchTriggers,
  fleet: benchFleet,
  sandbox: benchSandbox,
  modules: benchModules,
  provision: benchProvision,
  soak: benchSoak,
}
/** Take so long that they run only when they are named. */
const LONG = new Set(['soak'])

const wanted = process.argv.slice(2)
const unknown = wanted.filter((name) => !(name in BENCHES))
if (unknown.length > 0) {
  process.stderr.write(`no bench ${unknown.join(', ')}; there are ${Object.keys(BENCHES).join(', ')}\n`)
  process.exit(2)
}
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted.length === 0 ? LONG.has(name) : !wanted.includes(name)) continue
  const before = processorTime()
  await bench()
  process.stdout.write(describeHost(before, processorTime()))
}
