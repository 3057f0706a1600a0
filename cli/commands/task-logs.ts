/** Output of a task: printed once or followed; unchanged to a pipe. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { ApiRequest, Cli } from '../shared/command.ts'
import { follow } from '../shared/event-stream.ts'
import { isRecord } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

/** Polling interval for the next run of a task with a trigger or a schedule. */
const NEXT_RUN_MS = 1000
/** If there are more runs between two polls, the older ones are left out, and a note says so. */
const MAX_RUNS = 100

export async function printLogs(cli: Cli, given: Given, taskId: string, runId: string | undefined): Promise<void> {
  const stream = given.flags.get('stream')
  const task = { method: 'GET', service: 'manager', authorization: 'optional', token: given.credential } as const
  const path = `/tasks/${encodeURIComponent(taskId)}`
  const logs: ApiRequest = { ...task, path: `${path}/logs`, query: { run_id: runId, stream } }
  if (!given.flags.has('follow')) {
    const { text } = await cli.request(logs)
    if (text !== '') await cli.output.text(text.endsWith('\n') ? text : `${text}\n`)
    else cli.output.note(`no output; other runs: skein tasks runs ${taskId}`)
    return
  }
  const followRun = (id: string | undefined) =>
    follow(cli, { ...logs, query: { run_id: id, stream, follow: 'true' } }, ({ event, data }) => {
      if (event === 'end') return false
      // Only what the guest wrote, unless the requests are asked for.
      if (event === 'http' && stream !== event) return true
      void cli.output.text(textOfChunk(data))
      return true
    })
  const { value } = await cli.request({ ...task, path })
  const startsByItself = isRecord(value) && (isRecord(value['trigger']) || typeof value['schedule'] === 'string')
  if (runId !== undefined || !startsByItself) return await followRun(runId)

  /** Ids of the newest runs, the newest first. */
  const newest = async (limit: number): Promise<string[]> => {
    const page = (await cli.request({ ...task, path: `${path}/runs`, query: { limit: String(limit) } })).value
    const runs = isRecord(page) && Array.isArray(page['runs']) ? page['runs'].filter(isRecord) : []
    return runs.flatMap(({ id }) => (typeof id === 'string' ? [id] : []))
  }
  let pending = await newest(1)
  let last = pending[0]
  while (!cli.signal.aborted) {
    for (const id of pending.toReversed()) await followRun(id)
    if (cli.signal.aborted) return
    await sleep(NEXT_RUN_MS, undefined, { signal: cli.signal }).catch(() => undefined)
    if (cli.signal.aborted) return
    const ids = await newest(MAX_RUNS)
    const known = last === undefined ? -1 : ids.indexOf(last)
    if (last !== undefined && known === -1) cli.output.note(`only the newest ${MAX_RUNS} runs are shown`)
    pending = known === -1 ? ids : ids.slice(0, known)
    last = ids[0] ?? last
  }
}

/** Plain text, or the text inside a JSON object. */
function textOfChunk(data: string): string {
  if (!data.startsWith('{')) return data
  try {
    const value: unknown = JSON.parse(data)
    const text = isRecord(value) ? (value['text'] ?? value['data'] ?? value['line']) : undefined
    return typeof text === 'string' ? text : data
  } catch {
    return data
  }
}
