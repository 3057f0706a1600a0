/** A chart of series of one unit: the plot, what its points are, the figures of its series, and its values as a table and as CSV. */
import { Suspense, memo, useCallback, useMemo, useState } from 'react'
import type { ReactNode } from 'react'
import './charts.css'
import { Button } from '../../../design/controls.tsx'
import { Card, Empty, Skeleton, counted, formatCount, formatValue } from '../../../design/display.tsx'
import { saveFile } from '../../../shell/files.ts'
import { later } from '../../../shell/later.tsx'
import { useIsDark } from '../../../shell/theme.ts'
import { csvOfLines, filledSlots, stepsText, timesOf, valueAt } from './lines.ts'
import type { Line } from './lines.ts'
import { timeText } from './range-bar.tsx'
import type { Grid, Range } from './ranges.ts'

const Plot = later(async () => (await import('../../../charts/plot.tsx')).Plot)

/** Loads the plot while its data is on the way. */
export const preparePlot = () => Plot.prepare()

const seriesText = (count: number) => `${formatCount(count)} series`

export type ChartProps = {
  unit: string
  /** The lines in the order in which they are shown; the place of a line is its colour. */
  lines: readonly Line[]
  grid: Grid
  range: Range
  isUtc: boolean
  onZoom: (range: Range) => void
  /** Shows one series alone, or does without one. */
  onOnly?: ((line: Line) => void) | undefined
  onRemove?: ((line: Line) => void) | undefined
  /** Shown beside the buttons of the chart. */
  actions?: ReactNode
  /** Shown instead of the plot when no line has a value. */
  empty: ReactNode
}

export function Chart(props: ChartProps) {
  const { unit, lines, grid, range, isUtc, empty, actions } = props
  const [isTable, setTable] = useState(false)
  const [slot, setSlot] = useState<number>()
  const hasValues = lines.some(({ records }) => records > 0)
  return (
    <Card
      title={
        <span className="row wrap">
          {unit === '' ? 'Without a unit' : unit}
          <span className="muted small chart-facts">
            {hasValues
              ? `a point is ${stepsText(lines, grid)} · ${counted(recordsOf(lines), 'record')} of ${seriesText(lines.length)}`
              : seriesText(lines.length)}
          </span>
        </span>
      }
      actions={
        <>
          <Button
            kind="quiet"
            icon="table"
            pressed={isTable}
            label="Values as a table"
            onClick={() => setTable(!isTable)}
          />
          <Button
            kind="quiet"
            icon="file"
            label="Download CSV"
            disabledReason={hasValues ? undefined : 'The range has no values'}
            onClick={() => download(lines, grid, unit)}
          />
          {actions}
        </>
      }
    >
      {hasValues ? <Picture {...props} onPoint={setSlot} /> : empty}
      <Legend {...props} slot={slot} />
      {isTable ? <ValuesTable lines={lines} grid={grid} range={range} isUtc={isUtc} /> : null}
    </Card>
  )
}

const recordsOf = (lines: readonly Line[]) => lines.reduce((sum, { records }) => sum + records, 0)

/** The plot alone. The picture stays while only the pointer moves. */
export const Picture = memo(function Picture({
  unit,
  lines,
  grid,
  range,
  isUtc,
  heightPx,
  onZoom,
  onPoint,
}: Pick<ChartProps, 'unit' | 'lines' | 'grid' | 'range' | 'isUtc' | 'onZoom'> & {
  heightPx?: number
  onPoint: (slot: number | undefined) => void
}) {
  const isDark = useIsDark()
  const times = useMemo(() => timesOf(grid), [grid])
  const series = useMemo(() => lines.map((line, style) => ({ ...line, style })), [lines])
  const zoom = useCallback((from: number, to: number) => onZoom({ from, to }), [onZoom])
  return (
    <Suspense fallback={<div className="chart" />}>
      <Plot
        label={`Chart of ${lines.map(({ label }) => label).join(', ')}${unit === '' ? '' : ` in ${unit}`}. Arrow keys move the pointer, plus and minus zoom. The values are in the table below.`}
        times={times}
        series={series}
        from={range.from}
        to={range.to}
        unit={unit}
        theme={String(isDark)}
        isUtc={isUtc}
        {...(heightPx === undefined ? {} : { heightPx })}
        onZoom={zoom}
        onPoint={onPoint}
      />
    </Suspense>
  )
})

const FIGURES = ['last', 'min', 'mean', 'max'] as const
const FIGURE_NAMES = { last: 'Last', min: 'Min', mean: 'Mean', max: 'Max' } as const

function Legend({ lines, grid, isUtc, slot, onOnly, onRemove }: ChartProps & { slot: number | undefined }) {
  return (
    <div className="scroll-x chart-legend" tabIndex={0} role="region" aria-label="Series of the chart">
      <table className="plain">
        <thead>
          <tr>
            <th>Series</th>
            <th className="right pointed">
              {slot === undefined ? 'At the pointer' : timeText(grid.start + slot * grid.step, isUtc)}
            </th>
            {FIGURES.map((figure) => (
              <th key={figure} className="right">
                {FIGURE_NAMES[figure]}
              </th>
            ))}
            {onOnly === undefined && onRemove === undefined ? null : <th className="visually-hidden">Choice</th>}
          </tr>
        </thead>
        <tbody>
          {lines.map((line, style) => (
            <tr key={line.key}>
              <td>
                <span className="row">
                  <Swatch style={style} />
                  <bdi>{line.label}</bdi>
                </span>
              </td>
              <td className="right pointed">{slot === undefined ? '' : figureText(valueAt(line, slot, grid))}</td>
              {FIGURES.map((figure) => (
                <td key={figure} className="right">
                  {figureText(line.summary?.[figure])}
                </td>
              ))}
              {onOnly === undefined && onRemove === undefined ? null : (
                <td className="right">
                  <span className="row end">
                    <Button small kind="quiet" onClick={() => onOnly?.(line)} label={`Show only ${line.label}`}>
                      Only
                    </Button>
                    <Button
                      small
                      kind="quiet"
                      icon="close"
                      label={`Remove ${line.label}`}
                      onClick={() => onRemove?.(line)}
                    />
                  </span>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

export const figureText = (value: number | undefined) =>
  value === undefined ? <span className="muted">none</span> : formatValue(value)

const COLORS = 6
const DASHES = [undefined, '4 2', '1.500 1.500', '5 1.500 1 1.500']

/** The line of a series in small: its colour and its dashes. */
export function Swatch({ style }: { style: number }) {
  return (
    <svg className={`line-swatch s${(style % COLORS) + 1}`} viewBox="0 0 18 4" aria-hidden="true">
      <path d="M0 2h18" strokeDasharray={DASHES[Math.floor(style / COLORS) % DASHES.length]} />
    </svg>
  )
}

const MAX_ROWS = 1_000

function ValuesTable({ lines, grid, isUtc }: Pick<ChartProps, 'lines' | 'grid' | 'range' | 'isUtc'>) {
  const slots = filledSlots(lines, grid).toReversed().slice(0, MAX_ROWS)
  return (
    <div className="scroll-x chart-values" tabIndex={0} role="region" aria-label="Values of the range">
      {slots.length === 0 ? (
        <Empty icon="search" title="The range has no values" />
      ) : (
        <table className="plain">
          <thead>
            <tr>
              <th>Time</th>
              {lines.map(({ key, label }) => (
                <th key={key} className="right">
                  <bdi>{label}</bdi>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {slots.map((slot) => (
              <tr key={slot}>
                <td className="nowrap">{timeText(grid.start + slot * grid.step, isUtc)}</td>
                {lines.map(({ key, slots: { mean } }) => (
                  <td key={key} className="right">
                    {(mean[slot] ?? null) === null ? '' : formatValue(mean[slot] ?? 0)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p className="muted small">{formatCount(slots.length)} rows, newest first; each value is the mean of its step.</p>
    </div>
  )
}

function download(lines: readonly Line[], grid: Grid, unit: string): void {
  const begin = new Date(grid.start * 1_000).toISOString().slice(0, 16).replaceAll(':', '-')
  const name = `chart-${unit === '' ? 'values' : unit.replaceAll(/[^\w%]/g, '-')}-${begin}.csv`
  saveFile(name, csvOfLines(lines, grid))
}

export function WaitingChart() {
  return (
    <Card>
      <div className="chart">
        <Skeleton rows={5} />
      </div>
    </Card>
  )
}
