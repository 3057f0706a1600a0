/** What a task wrote: printed once, or followed; unchanged to a pipe. */
import type { ApiRequest, Cli } from '../shared/command.ts'
import { follow } from '../shared/event-stream.ts'
import { isRecord } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

export async function printLogs(cli: Cli, given: Given, taskId: string, runId: string | undefined): Promise<void> {
  const stream = given.flags.get('stream')
  const request: ApiRequest = {
    method: 'GET',
    service: 'manager',
    path: `/tasks/${encodeURIComponent(taskId)}/logs`,
    query: { run_id: runId, stream },
    authorization: 'optional',
    token: given.credential,
  }
  if (!given.flags.has('follow')) {
    const { text } = await cli.request(request)
    if (text !== '') await cli.output.text(text.endsWith('\n') ? text : `${text}\n`)
    else cli.output.note(`no output; other runs: skein tasks runs ${taskId}`)
    return
  }
  await follow(cli, { ...request, query: { run_id: runId, stream, follow: 'true' } }, ({ event, data }) => {
    if (event === 'end') return false
    void cli.output.text(textOfChunk(data))
    return true
  })
}

/** Text as it is, or the text inside a JSON object. */
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
