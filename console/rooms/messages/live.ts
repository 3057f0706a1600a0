/** Messages of a channel as they are committed, from one stream for the page. */
import { useEffect, useRef, useState } from 'react'
import type { ApiError } from '../../api/errors.ts'
import { followStream } from '../../api/event-stream.ts'
import type { StreamState } from '../../api/event-stream.ts'
import { formatJson, parseJson } from '../../api/json.ts'
import { recordRequest } from '../../api/requests.ts'

export type LiveMessage = {
  readonly id: string
  readonly atMs: number
  readonly subtopic: string
  readonly publisher: string
  readonly protocol: string
  readonly contentType: string
  readonly payload: unknown
}

type Wire = {
  subtopic?: string
  publisher?: string
  protocol?: string
  created?: number
  content_type?: string
  payload?: unknown
}

const MAX_KEPT = 500
/** Messages are shown together, so that a thousand a second do not mean a thousand pictures. */
const SHOW_MS = 250

export type Live = {
  readonly messages: readonly LiveMessage[]
  readonly state: StreamState
  readonly error: ApiError | undefined
  readonly isPaused: boolean
  /** The number of messages that arrived while it was paused. */
  readonly waiting: number
  readonly received: number
  pause: (isPaused: boolean) => void
}

/** `cannotSend`: why the user cannot send to the channel. */
export type Sending = { cannotSend: string | undefined; onSend: () => void }

export function useLive(domain: string, channel: string): Live {
  const [state, setState] = useState<StreamState>('connecting')
  const [error, setError] = useState<ApiError>()
  const [messages, setMessages] = useState<readonly LiveMessage[]>([])
  const [isPaused, setPaused] = useState(false)
  const [waiting, setWaiting] = useState(0)
  const [received, setReceived] = useState(0)
  const paused = useRef(false)
  const buffer = useRef<LiveMessage[]>([])
  const count = useRef(0)

  useEffect(() => {
    const stop = new AbortController()
    const path = `m/${domain}/c/${channel}/live`
    recordRequest({ method: 'GET', path, body: undefined })
    const show = () => {
      setReceived(count.current)
      if (paused.current) return setWaiting(buffer.current.length)
      const added = buffer.current
      buffer.current = []
      if (added.length > 0) setMessages((before) => [...added.toReversed(), ...before].slice(0, MAX_KEPT))
    }
    const timer = setInterval(show, SHOW_MS)
    void followStream({
      path,
      signal: stop.signal,
      onState: (next, failure) => {
        setState(next)
        setError(failure)
      },
      onEvent: ({ id, data }) => {
        const wire = parseJson(data) as Wire
        count.current += 1
        buffer.current.push({
          id,
          atMs: toMs(wire.created),
          subtopic: wire.subtopic ?? '',
          publisher: wire.publisher ?? '',
          protocol: wire.protocol ?? '',
          contentType: wire.content_type ?? '',
          payload: wire.payload,
        })
        if (buffer.current.length > MAX_KEPT) buffer.current.splice(0, buffer.current.length - MAX_KEPT)
      },
    })
    return () => {
      clearInterval(timer)
      stop.abort()
    }
  }, [domain, channel])

  return {
    messages,
    state,
    error,
    isPaused,
    waiting,
    received,
    pause: (next) => {
      paused.current = next
      setPaused(next)
      if (!next) setWaiting(0)
    },
  }
}

/** Nanoseconds or seconds since 1970. */
function toMs(created: number | undefined): number {
  if (created === undefined) return Date.now()
  return created > 1e14 ? created / 1e6 : created * 1_000
}

/** A payload in one line. */
export function describePayload(payload: unknown): string {
  if (
    Array.isArray(payload) &&
    payload.length <= 20 &&
    payload.every((one) => typeof one === 'object' && one !== null)
  ) {
    const parts = (payload as Record<string, unknown>[]).map((record) => {
      const name = `${text(record['bn'])}${text(record['n'])}`
      const value = record['v'] ?? record['vs'] ?? record['vb'] ?? record['vd']
      return value === undefined
        ? formatJson(record)
        : `${name === '' ? '' : `${name} = `}${text(value)}${record['u'] === undefined ? '' : ` ${text(record['u'])}`}`
    })
    return parts.join(', ')
  }
  return typeof payload === 'string' ? payload : formatJson(payload)
}

const text = (value: unknown) => (value === undefined ? '' : typeof value === 'string' ? value : formatJson(value))
