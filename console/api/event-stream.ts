/** Reads server-sent events with `fetch`, so that the token stays in a header. Reconnects where the stream ended. */
import { apiBase } from './base.ts'
import { ApiError, readError } from './errors.ts'
import { accessToken } from './session.ts'

export type StreamEvent = { readonly id: string; readonly event: string; readonly data: string }
export type StreamState = 'connecting' | 'open' | 'waiting' | 'ended'

type StreamOptions = {
  path: string
  signal: AbortSignal
  onEvent: (event: StreamEvent) => void
  onState: (state: StreamState, error?: ApiError) => void
  /** `end` means that there is no more, not that the server ends this connection. */
  isFinite?: boolean
}

const FIRST_PAUSE_MS = 500
const MAX_PAUSE_MS = 15_000
/** The server writes a comment every 15 s; a stream that is silent for longer is lost. */
const SILENCE_MS = 40_000

/** Follows the stream until the signal aborts, or the server refuses it. */
export async function followStream({ path, signal, onEvent, onState, isFinite = false }: StreamOptions): Promise<void> {
  let lastId = ''
  let pauseMs = FIRST_PAUSE_MS
  let isRefused = false
  while (!signal.aborted) {
    onState('connecting')
    try {
      const silence = new AbortController()
      const response: Response = await fetch(new URL(path, apiBase), {
        headers: {
          Authorization: `Bearer ${await accessToken(isRefused)}`,
          Accept: 'text/event-stream',
          ...(lastId === '' ? {} : { 'Last-Event-ID': lastId }),
        },
        signal: AbortSignal.any([signal, silence.signal]),
      })
      isRefused = response.status === 401
      if (!response.ok) throw await readError(response)
      onState('open')
      pauseMs = FIRST_PAUSE_MS
      for await (const event of eventsOf(response, silence)) {
        if (event.id !== '') lastId = event.id
        if (event.event === 'end' && isFinite) return onState('ended')
        if (event.event === 'end') break
        if (event.data !== '') onEvent(event)
      }
    } catch (error) {
      if (signal.aborted) return
      const known = error instanceof ApiError ? error : ApiError.unreachable(error)
      if ([400, 403, 404].includes(known.status)) return onState('ended', known)
      onState('waiting', known)
    }
    await pause(pauseMs, signal)
    pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)
  }
}

async function* eventsOf(response: Response, silence: AbortController): AsyncGenerator<StreamEvent> {
  const body = response.body?.pipeThrough(new TextDecoderStream())
  if (body === undefined) return
  let timer = setTimeout(() => silence.abort(), SILENCE_MS)
  let rest = ''
  let fields = { id: '', event: 'message', data: [] as string[] }
  try {
    for await (const chunk of body) {
      clearTimeout(timer)
      timer = setTimeout(() => silence.abort(), SILENCE_MS)
      const lines = `${rest}${chunk}`.split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) {
        if (line === '') {
          yield { id: fields.id, event: fields.event, data: fields.data.join('\n') }
          fields = { id: '', event: 'message', data: [] }
          continue
        }
        const colon = line.indexOf(':')
        const name = colon === -1 ? line : line.slice(0, colon)
        const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '')
        if (name === 'id') fields.id = value
        else if (name === 'event') fields.event = value
        else if (name === 'data') fields.data.push(value)
      }
    }
  } finally {
    clearTimeout(timer)
  }
}

const pause = (ms: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true })
  })
