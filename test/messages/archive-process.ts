/** A process that copies records to an archive until nothing is left, or kills itself at a step: nothing of it runs after that. */
import { parseArgs } from 'node:util'
import { createDatabase } from '#core/database/index.ts'
import type { DatabaseAddress } from '#core/database/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { archiveOnce } from '../../api/messages/archive/archiver.ts'

const { values } = parseArgs({
  options: {
    address: { type: 'string' },
    url: { type: 'string' },
    step: { type: 'string' },
    limits: { type: 'string' },
  },
})
const logger = createLogger({ name: 'archive', level: 'silent' })
const database = createDatabase({
  address: JSON.parse(values.address ?? '') as DatabaseAddress,
  maxConnections: 4,
  applicationName: 'archive test',
  logger,
})
const round = await archiveOnce(
  {
    database,
    logger,
    url: values.url ?? '',
    afterMs: 3_600_000,
    graceSeconds: -1,
    confirmMs: 0,
    ...(values.limits === undefined
      ? {}
      : { limits: JSON.parse(values.limits) as { records: number; storedBytes: number } }),
    atStep(step) {
      if (step === values.step) process.kill(process.pid, 'SIGKILL')
      return Promise.resolve()
    },
  },
  new AbortController().signal,
)
await database.close()
// Another process may hold the lock for as long as the server takes to notice its end.
console.log(JSON.stringify(round ?? null))
