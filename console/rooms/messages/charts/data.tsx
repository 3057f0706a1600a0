/** The series of a channel as charts, one for each unit, and their newest values, from which a person chooses. */
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useCallback, useEffect, useMemo } from 'react'
import { query } from '../../../api/queries.ts'
import { Button } from '../../../design/controls.tsx'
import { Card, Empty, Skeleton, absoluteTime, formatCount } from '../../../design/display.tsx'
import { useClientNames } from '../../../shell/names.tsx'
import { ErrorState, QueryView } from '../../../shell/states.tsx'
import { useView } from '../../../shell/url.ts'
import { PinButton } from '../boards/pin.tsx'
import { FIRST_VALUES, LATEST, preparedEnd } from './first-readings.ts'
import { Chart, WaitingChart, preparePlot } from './chart.tsx'
import { linesOf } from './lines.ts'
import type { Line } from './lines.ts'
import { NewestValues } from './newest-values.tsx'
import { RangeBar } from './range-bar.tsx'
import type { Range } from './ranges.ts'
import { fetchNearest, fetchReadings } from './readings.ts'
import type { Place, Readings } from './readings.ts'
import { formatChoice } from '../../../shell/chosen-series.ts'
import { parseChoice } from './series.ts'
import type { Series } from './series.ts'
import { READINGS, useRange } from './use-range.ts'

const MAX_VALUES = 1_000
const NEWEST_MS = 15_000

/** The readings of a range; those of the range before stay until they are there. */
export function useReadings(place: Place, chosen: readonly Series[] | undefined, { from, to }: Range) {
  return useQuery({
    queryKey: [READINGS, place, chosen?.map(({ key }) => key) ?? 'first', Math.round(from), Math.round(to)],
    queryFn: async ({ signal }) => await fetchReadings(place, chosen, { from, to }, signal),
    placeholderData: keepPreviousData,
    gcTime: 30_000,
  })
}

/** The lines of the readings with the names of their devices. */
export function useLines(
  domain: string,
  readings: Readings | undefined,
  chosen: readonly Series[] | undefined,
): Line[] {
  const publishers = useMemo(() => {
    const all = [...(chosen ?? []), ...(readings?.readings ?? []).map(({ series }) => series)]
    return [...new Set(all.map(({ publisher }) => publisher))].filter((id) => id !== '')
  }, [chosen, readings])
  const nameOf = useClientNames(domain, publishers)
  const names = publishers.map(nameOf).join('\n')
  return useMemo(
    () => (readings === undefined ? [] : linesOf(readings, chosen, nameOf)),
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- the names say what `nameOf` returns
    [readings, chosen, names],
  )
}

export function ChannelData({
  domain,
  channel,
  received,
  cannotSend,
  onSend,
}: {
  domain: string
  channel: string
  received: number
  /** Why the user cannot send to the channel. */
  cannotSend: string | undefined
  onSend: () => void
}) {
  const place = useMemo(() => ({ domain_id: domain, channel_id: channel }), [domain, channel])
  const range = useRange(received, { endOf: (seconds) => preparedEnd({ domain, id: channel }, seconds) })
  const [choice, setChoice] = useView('series')
  const [shownValues, setShownValues] = useView('values', String(FIRST_VALUES))
  const chosen = useMemo(() => parseChoice(choice), [choice])
  const readings = useReadings(place, chosen, range)
  const lines = useLines(domain, readings.data, chosen)
  const latest = useQuery({
    ...query(LATEST, {
      params: place,
      query: { limit: Math.min(Number(shownValues) || FIRST_VALUES, MAX_VALUES) },
    }),
    refetchInterval: NEWEST_MS,
  })
  useEffect(preparePlot, [])
  const { refetch } = latest
  const { to } = range
  useEffect(() => {
    if (received > 0) void refetch()
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- as often as the charts, and not with each message
  }, [to, refetch])
  const choose = useCallback((series: readonly Series[]) => setChoice(formatChoice(series)), [setChoice])
  return (
    <QueryView result={latest} entity={`channel:${channel}`}>
      {({ messages, total }) =>
        messages.length === 0 ? (
          <NoMeasurements cannotSend={cannotSend} onSend={onSend} />
        ) : (
          <>
            <RangeBar range={range} />
            <Charts
              domain={domain}
              place={place}
              readings={readings.data}
              error={readings.error}
              lines={lines}
              chosen={chosen}
              range={range}
              onChoose={choose}
            />
            <NewestValues
              domain={domain}
              messages={messages}
              total={total}
              shown={lines}
              chosen={chosen}
              onChoose={choose}
              onReset={() => setChoice('')}
              onMore={
                messages.length < Math.min(total, MAX_VALUES) ? () => setShownValues(String(MAX_VALUES)) : undefined
              }
            />
          </>
        )
      }
    </QueryView>
  )
}

function NoMeasurements({ cannotSend, onSend }: { cannotSend: string | undefined; onSend: () => void }) {
  return (
    <Card>
      <Empty
        icon="channel"
        title="No measurements yet"
        actions={
          <Button kind="primary" icon="send" disabledReason={cannotSend} onClick={onSend}>
            Send the first message
          </Button>
        }
      >
        SenML records appear here as charts. Connect a client and publish with one of its snippets.
      </Empty>
    </Card>
  )
}

type ChartsProps = {
  domain: string
  place: Place
  readings: Readings | undefined
  error: Error | null
  lines: readonly Line[]
  chosen: readonly Series[] | undefined
  range: ReturnType<typeof useRange>
  onChoose: (series: readonly Series[]) => void
}

function Charts({ domain, place, readings, error, lines, chosen, range, onChoose }: ChartsProps) {
  const { setRange, from, to, isUtc } = range
  const shownRange = useMemo(() => ({ from, to }), [from, to])
  const byUnit = useMemo(() => [...Map.groupBy(lines, ({ unit }) => unit)], [lines])
  if (readings === undefined)
    return error === null ? (
      <WaitingChart />
    ) : (
      <Card>
        <ErrorState error={error} />
      </Card>
    )
  const empty = <EmptyRange place={place} chosen={chosen ?? []} range={shownRange} onZoom={setRange} />
  if (chosen?.length === 0)
    return (
      <Card>
        <Empty icon="channel" title="No series is chosen">
          Choose series in the table.
        </Empty>
      </Card>
    )
  if (lines.length === 0) return <Card>{empty}</Card>
  return (
    <>
      {byUnit.map(([unit, ofUnit]) => (
        <Chart
          key={unit}
          unit={unit}
          lines={ofUnit}
          grid={readings.grid}
          range={shownRange}
          isUtc={isUtc}
          onZoom={setRange}
          onOnly={(line) => onChoose([line])}
          onRemove={(line) => onChoose(lines.filter(({ key }) => key !== line.key))}
          actions={
            <PinButton domain={domain} channel={place.channel_id} unit={unit} series={ofUnit} quick={range.quick} />
          }
          empty={empty}
        />
      ))}
      {chosen === undefined && readings.total > readings.readings.length ? (
        <p className="muted small">
          {formatCount(readings.readings.length)} of {formatCount(readings.total)} series are shown. Choose others in
          the table.
        </p>
      ) : null}
    </>
  )
}

/** Says where the nearest data is, and goes there with a range of the same length. */
function EmptyRange({
  place,
  chosen,
  range,
  onZoom,
}: {
  place: Place
  chosen: readonly Series[]
  range: Range
  onZoom: (range: Range) => void
}) {
  const { from, to } = range
  const nearest = useQuery({
    queryKey: ['nearest', place, chosen.map(({ key }) => key), Math.round(from), Math.round(to)],
    queryFn: async ({ signal }) => (await fetchNearest(place, chosen, range, signal)) ?? null,
    placeholderData: keepPreviousData,
    gcTime: 30_000,
  })
  const { data: at } = nearest
  if (at === undefined)
    return (
      <div className="chart">
        {nearest.error === null ? <Skeleton rows={5} /> : <ErrorState error={nearest.error} />}
      </div>
    )
  const half = (to - from) / 2
  return (
    <div className="chart">
      <Empty
        icon="search"
        title="Nothing was measured in this range"
        actions={
          at === null ? null : (
            <Button kind="primary" onClick={() => onZoom({ from: at - half, to: at + half })}>
              Show the nearest data
            </Button>
          )
        }
      >
        {at === null ? 'There is no other data.' : `The nearest data is from ${absoluteTime(at * 1_000)}.`}
      </Empty>
    </div>
  )
}
