/**
 * A plot of one or more series over time: mean, and the band from minimum to maximum where few are shown. A selection with the mouse, one
 * finger, two fingers or keys zooms; the pointers of a page move together.
 */
import { memo, useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { lonely } from './points.ts'
import type { LineValues } from './points.ts'

export type PlotSeries = {
  readonly key: string
  readonly label: string
  /** The number of the colour and the dashes of the line, from 0. */
  readonly style: number
  readonly mean: LineValues
  readonly min: LineValues
  readonly max: LineValues
}

type PlotProps = {
  label: string
  times: readonly number[]
  series: readonly PlotSeries[]
  from: number
  to: number
  unit: string
  /** Changes with the theme: colours are read again. */
  theme: string
  isUtc: boolean
  heightPx?: number
  onZoom: (from: number, to: number) => void
  /** The step under the pointer. */
  onPoint: (index: number | undefined) => void
}

const HEIGHT_PX = 240
const COLORS = 6
const DASHES: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [10, 3, 2, 3]]
/** With more series, bands hide each other. */
const MAX_BANDS = 6
/** Where the points are dense, only those that no line leads to are drawn. */
const POINTS: uPlot.Series.Points = {
  size: 7,
  filter: (plot, series, areAllShown) => (areAllShown ? null : lonely((plot.data[series] ?? []) as LineValues)),
}
const FACETS = 3
const MIN_SELECTED_PX = 6
/** A finger is less exact. */
const MIN_SWIPE_PX = 24
const KEY_ZOOM = 0.5
const LONG_STEP = 10

/** Colour and dashes of a line: together they tell 24 lines apart, and none by its colour alone. */
export const styleOf = (style: number) => ({
  color: `--series-${(style % COLORS) + 1}`,
  dash: DASHES[Math.floor(style / COLORS) % DASHES.length] ?? [],
})

export const Plot = memo(function Plot(props: PlotProps) {
  const { label, times, series, from, to, unit, theme, isUtc, heightPx = HEIGHT_PX } = props
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const given = useRef(props)
  given.current = props
  const shape = `${theme}|${unit}|${isUtc}|${heightPx}|${series.map((one) => `${one.style}${one.key}`).join('|')}`

  useEffect(() => {
    const target = place.current
    if (target === null) return
    const made = new uPlot(
      optionsOf(() => given.current, target.clientWidth),
      [[], ...series.flatMap(() => [[], [], []])] as uPlot.AlignedData,
      target,
    )
    plot.current = made
    const stopTouch = followFingers(made, () => given.current)
    const resize = new ResizeObserver(() => made.setSize({ width: target.clientWidth, height: heightPx }))
    resize.observe(target)
    return () => {
      resize.disconnect()
      stopTouch()
      made.destroy()
      plot.current = undefined
    }
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- `shape` says what the plot is made of
  }, [shape])

  useEffect(() => {
    const data = [times, ...series.flatMap(({ mean, max, min }) => [mean, max, min])]
    plot.current?.setData(data as unknown as uPlot.AlignedData, false)
    plot.current?.setScale('x', { min: from, max: to })
  }, [shape, times, series, from, to])

  return (
    <div
      ref={place}
      className="chart"
      role="group"
      aria-label={label}
      tabIndex={0}
      onKeyDown={(event) => {
        if (plot.current !== undefined && pressKey(plot.current, given.current, event.key, event.shiftKey)) {
          event.preventDefault()
          event.stopPropagation()
        }
      }}
    />
  )
})

/** Charts of a page share it. */
const PAGE = 'page'

function optionsOf(given: () => PlotProps, width: number): uPlot.Options {
  const { series, unit, isUtc, heightPx = HEIGHT_PX } = given()
  const style = getComputedStyle(document.documentElement)
  const colorOf = (name: string) => colour(style.getPropertyValue(name))
  const axis = {
    stroke: colorOf('--muted'),
    grid: { stroke: colorOf('--line'), width: 1 },
    ticks: { stroke: colorOf('--line'), width: 1 },
    font: '11px "Inter Variable", sans-serif',
  }
  const strokes = series.map((one) => colorOf(styleOf(one.style).color))
  return {
    width,
    height: heightPx,
    legend: { show: false },
    ...(isUtc ? { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1_000), 'Etc/UTC') } : {}),
    cursor: {
      drag: { x: true, y: false, setScale: false },
      y: false,
      points: { size: 6 },
      sync: { key: PAGE, scales: ['x', null], setSeries: false },
    },
    scales: { x: { time: true, auto: false }, y: { auto: true } },
    series: [
      {},
      ...series.flatMap(({ label, style: number }, at) => {
        const stroke = strokes[at] ?? ''
        const { dash } = styleOf(number)
        return [
          { label, stroke, width: 1.5, spanGaps: false, dash: [...dash], points: { ...POINTS, fill: stroke } },
          { label: `${label}, maximum`, stroke: 'transparent', points: { show: false } },
          { label: `${label}, minimum`, stroke: 'transparent', points: { show: false } },
        ]
      }),
    ],
    bands: series.length > MAX_BANDS ? [] : strokes.map((stroke, at) => bandOf(at, stroke)),
    axes: [
      { ...axis, values: (_plot, moments) => timeLabels(moments, isUtc) },
      {
        ...axis,
        size: 64,
        label: unit === '' ? undefined : unit,
        labelSize: unit === '' ? 0 : 18,
        labelFont: '11px "Inter Variable", sans-serif',
      } as uPlot.Axis,
    ],
    hooks: {
      setSelect: [
        (self) => {
          const { left, width: selected } = self.select
          if (selected < MIN_SELECTED_PX) return
          select(self, 0, 0)
          given().onZoom(self.posToVal(left, 'x'), self.posToVal(left + selected, 'x'))
        },
      ],
      setCursor: [(self) => given().onPoint(self.cursor.idx ?? undefined)],
    },
  }
}

const bandOf = (at: number, stroke: string) => ({
  series: [at * FACETS + 2, at * FACETS + 3] as [number, number],
  fill: withAlpha(stroke, 0.16),
})

/** Shows a selection without zooming. */
function select(plot: uPlot, left: number, width: number): void {
  plot.setSelect({ left, width, top: 0, height: width === 0 ? 0 : plot.over.clientHeight }, false)
}

/** Points as the mouse does, which moves the pointers of the other plots of the page too. */
function pointAt(plot: uPlot, left: number): void {
  const { left: x, top: y, height } = plot.over.getBoundingClientRect()
  plot.over.dispatchEvent(new MouseEvent('mousemove', { clientX: x + left, clientY: y + height / 2 }))
}

/** Returns whether the key has a meaning here. */
function pressKey(plot: uPlot, { times, from, to, onZoom }: PlotProps, key: string, isLong: boolean): boolean {
  const at = plot.cursor.idx ?? undefined
  const last = times.length - 1
  const step = isLong ? LONG_STEP : 1
  const goal = { ArrowLeft: (at ?? last + 1) - step, ArrowRight: (at ?? -1) + step, Home: 0, End: last }[key]
  if (goal !== undefined && last >= 0) {
    const time = times[Math.min(Math.max(goal, 0), last)] ?? from
    // The first step begins before the range.
    pointAt(plot, plot.valToPos(Math.min(Math.max(time, from), to), 'x'))
    return true
  }
  const factor = { '+': KEY_ZOOM, '=': KEY_ZOOM, '-': 1 / KEY_ZOOM }[key]
  if (factor === undefined) return false
  const around = at === undefined ? (from + to) / 2 : Math.min(Math.max(times[at] ?? from, from), to)
  onZoom(around - (around - from) * factor, around + (to - around) * factor)
  return true
}

/** One finger points and selects, two fingers stretch. Up and down, the page scrolls. */
function followFingers(plot: uPlot, given: () => PlotProps): () => void {
  const { over } = plot
  const stop = new AbortController()
  const starts = new Map<number, number>()
  const ends = new Map<number, number>()
  let wasStretched = false
  const leftOf = (event: PointerEvent) => event.clientX - over.getBoundingClientRect().left
  const on = (
    type: 'pointerdown' | 'pointermove' | 'pointerup' | 'pointercancel',
    act: (event: PointerEvent) => void,
  ) =>
    over.addEventListener(type, (event) => (event.pointerType === 'touch' ? act(event) : undefined), {
      signal: stop.signal,
    })
  const forget = () => {
    starts.clear()
    ends.clear()
    wasStretched = false
    select(plot, 0, 0)
  }
  over.style.touchAction = 'pan-y'
  on('pointerdown', (event) => {
    over.setPointerCapture(event.pointerId)
    starts.set(event.pointerId, leftOf(event))
    ends.set(event.pointerId, leftOf(event))
    wasStretched ||= starts.size === 2
  })
  on('pointermove', (event) => {
    const start = starts.get(event.pointerId)
    if (start === undefined) return
    const left = leftOf(event)
    ends.set(event.pointerId, left)
    if (!wasStretched) select(plot, Math.min(start, left), Math.abs(left - start))
  })
  on('pointercancel', forget)
  on('pointerup', (event) => {
    const start = starts.get(event.pointerId)
    if (start === undefined) return
    const zoom = wasStretched
      ? stretchOf(plot, [...starts.values()], [...ends.values()])
      : swipeOf(plot, start, leftOf(event))
    forget()
    if (zoom === undefined) pointAt(plot, start)
    else given().onZoom(...zoom)
  })
  return () => stop.abort()
}

function swipeOf(plot: uPlot, start: number, end: number): [number, number] | undefined {
  if (Math.abs(end - start) < MIN_SWIPE_PX) return undefined
  return [plot.posToVal(Math.min(start, end), 'x'), plot.posToVal(Math.max(start, end), 'x')]
}

/** What was between the fingers is now as wide as they are apart. */
function stretchOf(plot: uPlot, starts: readonly number[], ends: readonly number[]): [number, number] | undefined {
  const distance = ([one = 0, other = 0]: readonly number[]) => Math.abs(one - other)
  if (distance(starts) < MIN_SWIPE_PX || distance(ends) < MIN_SWIPE_PX) return undefined
  const scale = distance(starts) / distance(ends)
  const middle = ((starts[0] ?? 0) + (starts[1] ?? 0)) / 2
  const width = plot.over.clientWidth
  return [plot.posToVal(middle - middle * scale, 'x'), plot.posToVal(middle + (width - middle) * scale, 'x')]
}

/** A canvas knows no `light-dark()`: the browser resolves it. */
function colour(value: string): string {
  const probe = document.createElement('span')
  probe.style.color = value
  probe.hidden = true
  document.body.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

const withAlpha = (color: string, alpha: number) =>
  color.replace(/^rgb\((.+)\)$/, `rgb($1 / ${alpha})`).replaceAll(',', ' ')

function formatsOf(isUtc: boolean) {
  const zone = isUtc ? { timeZone: 'UTC' } : {}
  const format = (options: Intl.DateTimeFormatOptions) =>
    new Intl.DateTimeFormat(undefined, { hourCycle: 'h23', ...options, ...zone })
  return {
    clock: format({ hour: '2-digit', minute: '2-digit' }),
    clockSeconds: format({ hour: '2-digit', minute: '2-digit', second: '2-digit' }),
    day: format({ day: 'numeric', month: 'short' }),
  }
}
const LOCAL_FORMATS = formatsOf(false)
const UTC_FORMATS = formatsOf(true)

/** Times as in the tables, with the day where it begins. */
function timeLabels(moments: readonly number[], isUtc: boolean): string[] {
  const { clock, clockSeconds, day } = isUtc ? UTC_FORMATS : LOCAL_FORMATS
  const step = (moments[1] ?? 0) - (moments[0] ?? 0)
  return moments.map((moment, index) => {
    const at = moment * 1_000
    const date = day.format(at)
    if (step >= 86_400) return date
    const time = (step < 60 ? clockSeconds : clock).format(at)
    const before = moments[index - 1]
    return before !== undefined && day.format(before * 1_000) === date ? time : `${time}\n${date}`
  })
}
