/** The range of a page of charts, in its address: what changes it can be undone by Back. */
import { useIsFetching } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { DEFAULT_RANGE, RANGES, parseRange, shifted, stepOf, zoomed } from './ranges.ts'
import type { Range } from './ranges.ts'

/** New messages are drawn at most this often, and not more often than they change a point. */
const REDRAW_MS = 1_500
const MAX_REDRAW_MS = 15_000
/** A tenth of a step. */
const REDRAW_MS_PER_STEP_SECOND = 100
/** Requests of charts, by the first part of their key. */
export const READINGS = 'readings'

type Search = Record<string, string>

export type PageRange = Range & {
  /** The name of a range that ends now; undefined for one from a time to a time. */
  readonly quick: string | undefined
  /** Times are shown in UTC, and not in the zone of the browser. */
  readonly isUtc: boolean
  /** The range ends now, and moves on. */
  readonly isLive: boolean
  setQuick(name: string): void
  setRange(range: Range): void
  shift(direction: -1 | 1): void
  zoomOut(): void
  setUtc(isUtc: boolean): void
}

type Options = {
  /** The length of a page that does not say it. */
  byDefault?: string
  /** The end of a range of a length whose readings are on the way already. */
  endOf?: (seconds: number) => number | undefined
}

/** `received`: messages that arrived; a range that ends now moves on with them. */
export function useRange(received: number, { byDefault = DEFAULT_RANGE, endOf }: Options = {}): PageRange {
  const search: Search = useSearch({ strict: false })
  const navigate = useNavigate()
  const fixed = useMemo(() => parseRange(search['from'], search['to']), [search['from'], search['to']])
  const quick = RANGES[search['range'] ?? ''] === undefined ? byDefault : (search['range'] ?? byDefault)
  const length = RANGES[quick] ?? 3_600
  const end = useEnd(received, fixed === undefined ? stepOf(length) : Infinity, () => endOf?.(length))
  const { from, to } = fixed ?? { from: end - length, to: end }
  const isUtc = search['zone'] === 'utc'
  const set = useCallback(
    (changes: Record<string, string | undefined>, replace = false) => {
      void navigate({
        to: '.',
        replace,
        resetScroll: false,
        search: (before: Search) =>
          Object.fromEntries(Object.entries({ ...before, ...changes }).filter(([, value]) => value !== undefined)),
      })
    },
    [navigate],
  )
  const setRange = useCallback((range: Range) => set({ from: range.from.toFixed(3), to: range.to.toFixed(3) }), [set])
  return {
    from,
    to,
    quick: fixed === undefined ? quick : undefined,
    isUtc,
    isLive: fixed === undefined,
    setQuick: (name) => set({ range: name === byDefault ? undefined : name, from: undefined, to: undefined }),
    setRange,
    shift: (direction) => setRange(shifted({ from, to }, direction)),
    zoomOut: () => setRange(zoomed({ from, to }, 2)),
    setUtc: (next) => set({ zone: next ? 'utc' : undefined }, true),
  }
}

/** The end of a range that ends now: moves on when messages arrived, and every 15 s without. */
function useEnd(received: number, stepSeconds: number, first: () => number | undefined): number {
  const [end, setEnd] = useState(() => first() ?? Date.now() / 1_000)
  const isFirst = useRef(true)
  // A slow answer is awaited: the next question would cancel it.
  const isAsking = useIsFetching({ queryKey: [READINGS] }) > 0
  const redrawMs = Math.min(Math.max(stepSeconds * REDRAW_MS_PER_STEP_SECOND, REDRAW_MS), MAX_REDRAW_MS)
  const isLive = stepSeconds !== Infinity
  useEffect(() => {
    if (received === 0 || isAsking || !isLive) return
    // The time counts from the last picture: messages that arrive all the time must not put it off.
    const timer = setTimeout(() => setEnd(Date.now() / 1_000), Math.max(end * 1_000 + redrawMs - Date.now(), 0))
    return () => clearTimeout(timer)
  }, [received, isAsking, redrawMs, isLive, end])
  useEffect(() => {
    if (!isLive) return
    // The first range is as new as it can be, and its readings are on the way.
    if (!isFirst.current) setEnd(Date.now() / 1_000)
    const timer = setInterval(() => setEnd(Date.now() / 1_000), MAX_REDRAW_MS)
    return () => clearInterval(timer)
  }, [isLive])
  useEffect(() => void (isFirst.current = false), [])
  return end
}
