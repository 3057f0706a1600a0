/**
 * A program of its own that starts the embedded server and then stays: the tests kill it. It prints one line of JSON,
 * what it started or why it could not. Arguments: the options of `superviseEmbeddedPostgres` as JSON.
 */
import { kindOf } from '#core/errors/index.ts'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'

const options = JSON.parse(process.argv[2] ?? '{}') as { dataDir: string; unsafe?: boolean; systemDir?: string }

try {
  const server = await startEmbeddedPostgres({ ...options, log: () => {} })
  const { connection, dataDir, notices, pid } = server
  console.log(JSON.stringify({ connection, dataDir, notices, pid }))
  process.once('SIGTERM', () => void server.stop())
} catch (error) {
  console.log(JSON.stringify({ kind: kindOf(error), message: (error as Error).message }))
  process.exitCode = 1
}
