/** What is shown: states, times, figures, empty places. */
import { useEffect, useState } from 'react'
import type { ReactNode } from 'react'
import { Icon } from './icon.tsx'
import type { IconName } from './icon.tsx'

export type Tone = 'ok' | 'warn' | 'bad' | 'idle' | 'active'
const TONE_ICONS: Readonly<Record<Tone, IconName>> = {
  ok: 'ok',
  warn: 'warn',
  bad: 'bad',
  idle: 'idle',
  active: 'active',
}

/** A state: icon, word and colour. */
export function State({ tone, children, icon }: { tone: Tone; children: ReactNode; icon?: IconName }) {
  return (
    <span className={`state ${tone}`}>
      <Icon name={icon ?? TONE_ICONS[tone]} />
      {children}
    </span>
  )
}

export function EntityStatus({ status }: { status: string }) {
  return (
    <State tone={status === 'enabled' ? 'ok' : 'idle'}>
      {status === 'enabled' ? 'Enabled' : status[0]?.toUpperCase() + status.slice(1)}
    </State>
  )
}

const UNITS: readonly (readonly [Intl.RelativeTimeFormatUnit, number])[] = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
]
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' })
/** Dates and numbers are those of the browser's language; words are English. */
const LOCALE = undefined
const absolute = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium', timeStyle: 'medium' })

export const isNever = (at: string | undefined) => at === undefined || at === '' || at.startsWith('0001-')

export function relativeTime(at: number, now: number = Date.now()): string {
  const seconds = (at - now) / 1_000
  for (const [unit, size] of UNITS)
    if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit)
  return Math.abs(seconds) < 5 ? 'now' : relative.format(Math.trunc(seconds), 'second')
}

export const absoluteTime = (at: number) => absolute.format(at)

/** `isAhead`: a time that is to come. Another one is never shown in the future, whatever the clocks of browser and server are. */
export function Time({ at, isAhead = false }: { at: string | undefined; isAhead?: boolean }) {
  // What has arrived since the last tick is not later than now.
  const now = Math.max(useNow(15_000), Date.now())
  if (at === undefined || isNever(at)) return <span className="muted">never</span>
  const ms = Date.parse(at)
  return (
    <time dateTime={at} title={absolute.format(ms)}>
      {relativeTime(isAhead ? ms : Math.min(ms, now), now)}
    </time>
  )
}

export function useNow(everyMs: number): number {
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs)
    return () => clearInterval(timer)
  }, [everyMs])
  return now
}

const whole = new Intl.NumberFormat(LOCALE)
const fixed = (digits: number) =>
  new Intl.NumberFormat(LOCALE, { minimumFractionDigits: digits, maximumFractionDigits: digits })
const [tenths, hundredths] = [fixed(1), fixed(2)]
const significant = new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 6 })
const compact = new Intl.NumberFormat(LOCALE, { notation: 'compact', maximumFractionDigits: 1 })
export const formatCount = (value: number) => whole.format(value)
/** `1 client`, `2 clients`. */
export const counted = (count: number, noun: string) => `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`
export const formatCompact = (value: number) => (value < 10_000 ? whole.format(value) : compact.format(value))
export function formatBytes(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`
  const units = ['KiB', 'MiB', 'GiB', 'TiB']
  let value = bytes
  let at = -1
  while (value >= 1_024 && at < units.length - 1) {
    value /= 1_024
    at += 1
  }
  return `${value < 10 ? tenths.format(value) : whole.format(Math.round(value))} ${units[at]}`
}
export function formatDuration(ms: number): string {
  if (ms > 0 && ms < 1) return `${hundredths.format(ms)} ms`
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${tenths.format(ms / 1_000)} s`
  return ms < 3_600_000 ? `${Math.round(ms / 60_000)} min` : `${tenths.format(ms / 3_600_000)} h`
}
/** Six digits; very small numbers with an exponent. */
export function formatValue(value: number): string {
  if (Number.isInteger(value)) return whole.format(value)
  return Math.abs(value) < SMALL ? Number(value.toPrecision(6)).toString() : significant.format(value)
}
const SMALL = 1e-4

/** Null is a gap: nothing is known of that step. */
export function Sparkline({ values, label }: { values: readonly (number | null)[]; label: string }) {
  if (values.length < 2) return null
  const max = Math.max(...values.map((value) => value ?? 0), 1)
  const width = 100 / (values.length - 1)
  const parts: { x: number; y: number }[][] = []
  for (const [index, value] of values.entries()) {
    if (value === null) continue
    const point = { x: index * width, y: 23 - (value / max) * 21 }
    if (index > 0 && values[index - 1] !== null) parts.at(-1)?.push(point)
    // A single value is as wide as half a step.
    else parts.push(index === values.length - 1 ? [{ ...point, x: point.x - width / 2 }, point] : [point])
  }
  const lines = parts
    .map((part) => {
      const [only] = part
      return part.length > 1 || only === undefined ? part : [only, { ...only, x: only.x + width / 2 }]
    })
    .map((part) => ({ part, line: part.map(({ x, y }) => `${x.toFixed(2)},${y.toFixed(2)}`).join(' L') }))
  return (
    <svg className="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <path className="base" d="M0,23.5 L100,23.5" />
      {lines.map(({ part, line }) => (
        <path key={`area ${line}`} className="area" d={`M${part[0]?.x},24 L${line} L${part.at(-1)?.x},24 Z`} />
      ))}
      {lines.map(({ line }) => (
        <path key={line} d={`M${line}`} />
      ))}
    </svg>
  )
}

export function Empty({
  icon,
  title,
  children,
  actions,
}: {
  icon: IconName
  title: string
  children?: ReactNode
  actions?: ReactNode
}) {
  return (
    <div className="empty">
      <Icon name={icon} size="large" />
      <h2>{title}</h2>
      {children === undefined ? null : <p>{children}</p>}
      {actions === undefined ? null : <div className="row">{actions}</div>}
    </div>
  )
}

const WIDTHS = ['72%', '58%', '80%', '46%', '66%', '74%']
export function Skeleton({ rows = 4 }: { rows?: number }) {
  return (
    <div className="stack mid" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_none, index) => (
        <div key={index} className="skeleton" style={{ width: WIDTHS[index % WIDTHS.length] }} />
      ))}
    </div>
  )
}

export function Notice({
  tone,
  children,
  actions,
}: {
  tone: 'warn' | 'bad' | 'ok' | 'plain'
  children: ReactNode
  actions?: ReactNode
}) {
  return (
    <div className={`notice ${tone}`} role={tone === 'bad' ? 'alert' : undefined}>
      {tone === 'plain' ? null : <Icon name={tone} />}
      <div className="grow">{children}</div>
      {actions}
    </div>
  )
}

/** What support asks for, such as the id of a request. */
export function Details({ children }: { children: ReactNode }) {
  return (
    <details className="muted small">
      <summary>Details</summary>
      <div>{children}</div>
    </details>
  )
}

export function Facts({ rows }: { rows: readonly (readonly [string, ReactNode] | undefined)[] }) {
  return (
    <dl className="facts">
      {rows.map((row) =>
        row === undefined ? null : (
          <div key={row[0]} style={{ display: 'contents' }}>
            <dt>{row[0]}</dt>
            <dd>{row[1]}</dd>
          </div>
        ),
      )}
    </dl>
  )
}

export function Card({
  title,
  actions,
  children,
  flush,
  className = '',
}: {
  title?: ReactNode
  actions?: ReactNode
  children: ReactNode
  flush?: boolean
  className?: string
}) {
  return (
    <section className={`card ${className}`}>
      {title === undefined ? null : (
        <div className="card-head">
          <h2 className="grow">{title}</h2>
          {actions}
        </div>
      )}
      <div className={`card-body ${flush === true ? 'flush' : ''}`}>{children}</div>
    </section>
  )
}

export function Tags({ tags }: { tags: readonly string[] }) {
  if (tags.length === 0) return <span className="muted">none</span>
  return (
    <>
      {tags.map((tag) => (
        <span key={tag} className="tag">
          {tag}
        </span>
      ))}
    </>
  )
}
