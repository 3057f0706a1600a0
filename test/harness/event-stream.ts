/** A reader of server-sent events over a real socket, as a client of ours is one. */
import { request } from 'node:http'
import type { Agent, IncomingMessage } from 'node:http'
import { until } from './until.ts'

export type SseEvent = { id: string | undefined; event: string; data: Record<string, unknown> }

export type EventReader = AsyncDisposable & {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  /** Everything that came, in order; heartbeats are left out. */
  readonly events: SseEvent[]
  /** What a client would send as Last-Event-ID. */
  lastId(): string | undefined
  /** Comments that came. */
  comments(): number
  isEnded(): boolean
  /** Stops taking bytes from the socket, as a slow reader does. */
  pause(): void
  resume(): void
  /** The first event of this operation that `where` fits. */
  next(operation: string, where?: (data: Record<string, unknown>) => boolean): Promise<SseEvent>
  close(): void
}

export async function openEvents(
  url: string,
  headers: Record<string, string>,
  agent: Agent | false = false,
): Promise<EventReader> {
  const events: SseEvent[] = []
  let lastId: string | undefined
  let comments = 0
  let isEnded = false
  let text = ''
  const sent = request(url, { headers, agent })
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    sent.once('response', resolve).once('error', reject).end()
  })
  sent.on('error', () => (isEnded = true))
  response.setEncoding('utf8')
  response.on('close', () => (isEnded = true))
  response.on('error', () => (isEnded = true))
  response.on('data', (chunk: string) => {
    text += chunk
    const blocks = text.split('\n\n')
    text = blocks.pop() ?? ''
    for (const block of blocks) read(block)
  })

  function read(block: string): void {
    const fields = new Map<string, string>()
    for (const line of block.split('\n')) {
      if (line.startsWith(':')) comments += 1
      const split = line.indexOf(': ')
      if (split > 0) fields.set(line.slice(0, split), line.slice(split + 2))
    }
    lastId = fields.get('id') ?? lastId
    const data = fields.get('data')
    if (data === undefined) return
    events.push({
      id: fields.get('id'),
      event: fields.get('event') ?? 'message',
      data: JSON.parse(data) as Record<string, unknown>,
    })
  }

  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    events,
    lastId: () => lastId,
    comments: () => comments,
    isEnded: () => isEnded,
    pause: () => void response.pause(),
    resume: () => void response.resume(),
    next: (operation, where = () => true) =>
      until(
        () => events.find(({ event, data }) => event === operation && where(data)),
        `${operation} arrives; there were ${events.map(({ event }) => event).join(', ')}`,
      ),
    close: () => sent.destroy(),
    [Symbol.asyncDispose]() {
      sent.destroy()
      return Promise.resolve()
    },
  }
}
