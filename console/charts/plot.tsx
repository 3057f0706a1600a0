/** A plot of one or more series over time: mean with the band from minimum to maximum. Gaps stay open; a selection zooms. */
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'

export type PlotSeries = {
  readonly label: string
  /** 1 to 6: a colour of the tokens. */
  readonly color: number
  readonly mean: readonly (number | null)[]
  readonly min: readonly (number | null)[]
  readonly max: readonly (number | null)[]
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
  onZoom: (from: number, to: number) => void
}

const HEIGHT_PX = 240
const FACETS = 3

export function Plot({ label, times, series, from, to, unit, theme, onZoom }: PlotProps) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const zoom = useRef(onZoom)
  zoom.current = onZoom
  const shape = `${theme}|${unit}|${series.map((one) => `${one.color}${one.label}`).join('|')}`

  useEffect(() => {
    const target = place.current
    if (target === null) return
    const style = getComputedStyle(document.documentElement)
    const colorOf = (name: string) => colour(style.getPropertyValue(name))
    const axis = {
      stroke: colorOf('--muted'),
      grid: { stroke: colorOf('--line'), width: 1 },
      ticks: { stroke: colorOf('--line'), width: 1 },
      font: '11px "Inter Variable", sans-serif',
    }
    const made = new uPlot(
      {
        width: target.clientWidth,
        height: HEIGHT_PX,
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, y: false, points: { size: 6 } },
        scales: { x: { time: true, auto: false }, y: { auto: true } },
        series: [
          {},
          ...series.flatMap(({ label: name, color }) => {
            const stroke = colorOf(`--series-${color}`)
            return [
              { label: name, stroke, width: 1.5, spanGaps: false, points: { size: 4 } },
              { label: `${name}, maximum`, stroke: 'transparent', points: { show: false } },
              { label: `${name}, minimum`, stroke: 'transparent', points: { show: false } },
            ]
          }),
        ],
        bands: series.map(({ color }, index) => ({
          series: [index * FACETS + 2, index * FACETS + 3] as [number, number],
          fill: withAlpha(colorOf(`--series-${color}`), 0.16),
        })),
        axes: [
          { ...axis, values: (_plot, moments) => timeLabels(moments) },
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
              const { left, width } = self.select
              if (width < 6) return
              zoom.current(self.posToVal(left, 'x'), self.posToVal(left + width, 'x'))
              self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false)
            },
          ],
        },
      },
      [[], ...series.flatMap(() => [[], [], []])] as uPlot.AlignedData,
      target,
    )
    plot.current = made
    const resize = new ResizeObserver(() => made.setSize({ width: target.clientWidth, height: HEIGHT_PX }))
    resize.observe(target)
    return () => {
      resize.disconnect()
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

  return <div ref={place} className="chart" role="img" aria-label={label} />
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

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' })
const clockSeconds = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })
const day = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'short' })

/** Times as in the tables, with the day where it begins. */
function timeLabels(moments: readonly number[]): string[] {
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
