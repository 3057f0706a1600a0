/**
 * A program that adds results to a spool, one after the other, and says which are kept, until it is killed. Their sizes are the given ones in turn. All
 * but the newest three are acknowledged if the third argument says so. `npx node spooling-program.ts PATH BYTES[,BYTES…] (all|newest)`
 */
import { setTimeout as pause } from 'node:timers/promises'
import { Spool } from '#worker/spool/index.ts'

const [path = '', bytes = '0', kept = 'all'] = process.argv.slice(2)
const sizes = bytes.split(',').map(Number)
const MAX_RESULTS = 200
const UNACKNOWLEDGED = 3

const say = (line: string) => process.stdout.write(`${line}\n`)
const spool = await Spool.open(path, { maxBytes: 1024 * 1024 * 1024 })
const first = spool.results().reduce((next, { key }) => Math.max(next, Number(key) + 1), 0)
let wasRefused = false
for (let index = first; index < first + MAX_RESULTS; index++) {
  say(`begin ${index}`)
  await spool.add(String(index), new Uint8Array(sizes[index % sizes.length] ?? 0).fill(index)).then(
    () => say(`kept ${index}`),
    () => say(`refused ${index}`),
  )
  if (kept === 'newest')
    for (const { key } of spool.results().slice(0, -UNACKNOWLEDGED)) {
      say(`acknowledge ${key}`)
      spool.acknowledge(key)
    }
  if (spool.isRefused && !wasRefused) say(`full ${spool.isFull}`)
  if (!spool.isRefused && wasRefused) say(`saved ${index}`)
  wasRefused = spool.isRefused
  if (wasRefused) await pause(50)
}
say('end')
setInterval(() => undefined, 60_000)
