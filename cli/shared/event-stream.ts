/** A stream of server-sent events that reconnects until the user stops it. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { ApiRequest, Cli } from './command.ts'
import { CommandError, InterruptedError, RefusedError } from './failures.ts'
import { startRequest } from './http.ts'

export type StreamEvent = { id: string | undefined; event: string; data: string }

/** This is longer than the interval of the server's comments, a few seconds. */
const SILENCE_DEADLINE_MS = 90_000
const FIRST_WAIT_MS = 500
const MAX_WAIT_MS = 10_000
/** A longer line is not a Skein event. */
const MAX_PENDING_CHARS = 32 * 1024 * 1024

/** Ends when the user interrupts it, or when `onEvent` returns false. Throws when the server refuses. */
export async function follow(cli: Cli, request: ApiRequest, onEvent: (event: StreamEvent) => boolean): Promise<void> {
  let lastId: string | undefined
  let waitMs = FIRST_WAIT_MS
  let wasOpen = false
  while (!cli.signal.aborted) {
    try {
      for await (const event of connect(cli, request, lastId)) {
        wasOpen = true
        waitMs = FIRST_WAIT_MS
        lastId = event.id ?? lastId
        if (!onEvent(event)) return
      }
      wasOpen = true
    } catch (error) {
      if (error instanceof InterruptedError || cli.signal.aborted) return
      const isUnexpired = error instanceof RefusedError && error.status < 500 && error.status !== 429
      if (isUnexpired || !wasOpen) throw error
      cli.output.note(`${(error as Error).message}; reconnecting`)
    }
    await sleep(waitMs, undefined, { signal: cli.signal }).catch(() => undefined)
    waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)
  }
}

async function* connect(cli: Cli, request: ApiRequest, lastId: string | undefined): AsyncGenerator<StreamEvent> {
  const { url, headers } = await cli.prepare(request)
  const response = await startRequest({
    method: 'GET',
    url,
    headers: {
      ...headers,
      Accept: 'text/event-stream',
      ...(lastId === undefined ? {} : { 'Last-Event-ID': lastId }),
    },
    body: undefined,
    deadlineMs: SILENCE_DEADLINE_MS,
    isInsecure: cli.settings.isInsecure,
    signal: cli.signal,
  })
  if ((response.statusCode ?? 0) >= 400) {
    response.destroy()
    // This request reads the error answer and throws with a hint.
    await cli.request(request)
    throw new CommandError(`the server returned ${response.statusCode}`)
  }
  let pending = ''
  response.setEncoding('utf8')
  for await (const chunk of response as AsyncIterable<string>) {
    pending += chunk
    if (pending.length > MAX_PENDING_CHARS) throw new CommandError('the server sends no events')
    const blocks = pending.split(/\r?\n\r?\n/)
    pending = blocks.pop() ?? ''
    for (const block of blocks) {
      const event = parseEvent(block)
      if (event !== undefined) yield event
    }
  }
}

/** A block between empty lines; undefined for one without data (comments, `retry`). */
export function parseEvent(block: string): StreamEvent | undefined {
  let id: string | undefined
  let event = 'message'
  const data: string[] = []
  for (const line of block.split(/\r?\n/)) {
    const [, field, value = ''] = /^([a-z]+): ?(.*)$/s.exec(line) ?? []
    if (field === 'id') id = value
    else if (field === 'event') event = value
    else if (field === 'data') data.push(value)
  }
  return data.length === 0 ? undefined : { id, event, data: data.join('\n') }
}
