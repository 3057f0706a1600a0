/** A reader of server-sent events over a real socket. */
import { request } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { HttpApp } from '#core/http/index.ts'
import { until } from './support.ts'

export type SseEvent = { event: string; id: string; data: Record<string, unknown> }

export type SseReader = {
  readonly status: number
  readonly events: readonly SseEvent[]
  /** The first event that meets the condition, waited for. */
  find(what: string, isIt: (event: SseEvent) => boolean): Promise<SseEvent>
  close(): void
}

export async function openSse(app: HttpApp, path: string, headers: Record<string, string> = {}): Promise<SseReader> {
  if (app.server.address() === null) await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const events: SseEvent[] = []
  return await new Promise((resolve, reject) => {
    const call = request({ port, host: '127.0.0.1', path, headers }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (part: string) => {
        text += part
        for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
          const event = parse(text.slice(0, end))
          text = text.slice(end + 2)
          if (event !== undefined) events.push(event)
        }
      })
      response.on('error', () => undefined)
      resolve({
        status: response.statusCode ?? 0,
        events,
        find: async (what, isIt) =>
          (await until(
            what,
            () => Promise.resolve(events.find(isIt)),
            (event) => event !== undefined,
          )) as SseEvent,
        close: () => call.destroy(),
      })
    })
    call.on('error', reject)
    call.end()
  })
}

function parse(text: string): SseEvent | undefined {
  const fields = new Map(
    text
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()] as const),
  )
  const data = fields.get('data')
  if (data === undefined) return undefined
  const parsed = JSON.parse(data) as Record<string, unknown>
  return { event: fields.get('event') ?? '', id: fields.get('id') ?? '', data: parsed }
}
