/** The form of a tile: what it shows, and of which series. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { query } from '../../../api/queries.ts'
import { Check, Segments, SelectField, TextArea, TextField } from '../../../design/controls.tsx'
import { Skeleton } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { InputError, useFormAction } from '../../../shell/action.ts'
import { useClientNames } from '../../../shell/names.tsx'
import { ErrorState } from '../../../shell/states.tsx'
import { MAX_CHOSEN, naturalOrder, seriesOf } from '../charts/series.ts'
import type { Series } from '../charts/series.ts'
import { DEFAULT_WIDTHS, hasSeries, newTile } from './content.ts'
import type { Kind, Tile } from './content.ts'

const KIND_NAMES: readonly (readonly [Kind, string])[] = [
  ['chart', 'Chart'],
  ['value', 'Value'],
  ['gauge', 'Gauge'],
  ['state', 'State'],
  ['alarms', 'Alarms'],
  ['text', 'Text'],
]
const MAX_CHANNELS = 100
const MAX_LISTED = 1_000

export function TileForm({
  domain,
  tile,
  onClose,
  onDone,
}: {
  domain: string
  /** Undefined for a new one. */
  tile: Tile | undefined
  onClose: () => void
  onDone: (tile: Tile) => Promise<void>
}) {
  const [draft, setDraft] = useState(() => tile ?? newTile({ kind: 'chart' }))
  const change = (fields: Partial<Tile>) => setDraft({ ...draft, ...fields })
  const [ends, setEnds] = useState({ min: endText(draft.min), max: endText(draft.max) })
  const done = useFormAction(
    'The tile was not saved',
    async () => {
      if (draft.kind === 'text' && draft.text.trim() === '') throw new InputError('text', 'Enter a text')
      if (hasSeries(draft.kind) && draft.channel === '') throw new InputError('channel', 'Choose a channel')
      if (hasSeries(draft.kind) && draft.series.length === 0) throw new InputError('series', 'Choose a series')
      const [min, max] = [endOf('min', ends.min), endOf('max', ends.max)]
      if (min !== undefined && max !== undefined && max <= min)
        throw new InputError('max', 'The upper end must be greater than the lower end')
      const isOfNumbers = draft.kind === 'gauge' || draft.kind === 'state'
      await onDone({
        ...draft,
        title: draft.title.trim(),
        ...(hasSeries(draft.kind) ? {} : { channel: '', series: [] }),
        ...(isOfNumbers ? { min, max } : { min: undefined, max: undefined }),
      })
    },
    onClose,
  )
  return (
    <FormDialog
      title={tile === undefined ? 'Add tile' : 'Edit tile'}
      submit={tile === undefined ? 'Add' : 'Done'}
      action={done}
      onClose={onClose}
    >
      <Segments
        label="Kind"
        value={draft.kind}
        options={KIND_NAMES}
        onChange={(kind) =>
          change({
            kind,
            series: kind === 'chart' ? draft.series : draft.series.slice(0, 1),
            ...(tile === undefined ? { width: DEFAULT_WIDTHS[kind] } : {}),
          })
        }
      />
      <TextField label="Title" field="title" value={draft.title} onChange={(title) => change({ title })} />
      {draft.kind === 'text' ? (
        <TextArea label="Text" field="text" value={draft.text} onChange={(text) => change({ text })} />
      ) : draft.kind === 'alarms' ? (
        <TextField
          label="Only those with this text"
          field="text"
          value={draft.text}
          onChange={(text) => change({ text })}
          hint="In the alarm, its rule, its client or the name of its series. Optional."
        />
      ) : (
        <>
          <ChannelField
            domain={domain}
            channel={draft.channel}
            onChange={(channel) => change({ channel, series: [] })}
          />
          {draft.channel === '' ? null : <SeriesFieldset domain={domain} tile={draft} onChange={change} />}
        </>
      )}
      {draft.kind === 'gauge' || draft.kind === 'state' ? (
        <>
          <TextField
            label={draft.kind === 'gauge' ? 'Lower end' : 'Good from'}
            field="min"
            inputMode="decimal"
            value={ends.min}
            onChange={(min) => setEnds({ ...ends, min })}
            hint={draft.kind === 'gauge' ? 'Default 0' : 'Of numbers. Optional.'}
          />
          <TextField
            label={draft.kind === 'gauge' ? 'Upper end' : 'Good to'}
            field="max"
            inputMode="decimal"
            value={ends.max}
            onChange={(max) => setEnds({ ...ends, max })}
            hint={draft.kind === 'gauge' ? 'Default 100' : 'Of numbers. Optional.'}
          />
        </>
      ) : null}
      {draft.kind === 'state' ? (
        <TextField
          label="Good text"
          field="text"
          value={draft.text}
          onChange={(text) => change({ text })}
          hint="Of texts and booleans, such as open or true. Optional: true is good."
        />
      ) : null}
    </FormDialog>
  )
}

const endText = (value: number | undefined) => (value === undefined ? '' : String(value))

function endOf(field: 'min' | 'max', text: string): number | undefined {
  if (text.trim() === '') return undefined
  const value = Number(text.trim())
  if (!Number.isFinite(value)) throw new InputError(field, 'Enter a number')
  return value
}

function ChannelField({
  domain,
  channel,
  onChange,
}: {
  domain: string
  channel: string
  onChange: (channel: string) => void
}) {
  const [name, setName] = useState('')
  const channels = useQuery(
    query('GET /{domain_id}/channels', {
      params: { domain_id: domain },
      query: { limit: MAX_CHANNELS, order: 'name', dir: 'asc', name },
    }),
  )
  const listed = channels.data?.channels ?? []
  const total = channels.data?.total ?? 0
  return (
    <>
      {total > MAX_CHANNELS || name !== '' ? (
        <TextField label="Channels with this in their name" value={name} onChange={setName} />
      ) : null}
      <SelectField
        label="Channel"
        field="channel"
        value={channel}
        onChange={onChange}
        options={[
          ['', 'Choose a channel'],
          ...listed.map((one): [string, string] => [one.id, one.name === '' ? one.id : one.name]),
          ...(channel === '' || listed.some(({ id }) => id === channel)
            ? []
            : [[channel, channel] as [string, string]]),
        ]}
      />
    </>
  )
}

function SeriesFieldset({
  domain,
  tile,
  onChange,
}: {
  domain: string
  tile: Tile
  onChange: (fields: Partial<Tile>) => void
}) {
  const latest = useQuery(
    query('GET /{domain_id}/channels/{channel_id}/messages/latest', {
      params: { domain_id: domain, channel_id: tile.channel },
      query: { limit: MAX_LISTED },
    }),
  )
  const isOfNumbers = tile.kind === 'chart' || tile.kind === 'gauge'
  const listed = (latest.data?.messages ?? []).filter(({ value }) => !isOfNumbers || value !== undefined)
  const publishers = [...new Set(listed.map(({ publisher }) => publisher))].filter((id) => id !== '')
  const nameOf = useClientNames(domain, publishers)
  if (latest.data === undefined)
    return latest.error === null ? <Skeleton rows={3} /> : <ErrorState error={latest.error} />
  const labelOf = (one: Series) =>
    [nameOf(one.publisher), one.subtopic, one.name, one.unit === '' ? '' : `(${one.unit})`]
      .filter((part) => part !== '')
      .join(' ')
  const rows = listed.map(seriesOf).toSorted((one, other) => naturalOrder(labelOf(one), labelOf(other)))
  const chosen = new Set(tile.series.map((one) => seriesOf(one).key))
  if (rows.length === 0)
    return (
      <p className="muted">{isOfNumbers ? 'No series of the channel has numbers.' : 'The channel has no series.'}</p>
    )
  if (tile.kind !== 'chart')
    return (
      <SelectField
        label="Series"
        field="series"
        value={[...chosen][0] ?? ''}
        onChange={(key) => onChange({ series: rows.filter((one) => one.key === key).map(fieldsOf) })}
        options={[['', 'Choose a series'], ...rows.map((one): [string, string] => [one.key, labelOf(one)])]}
      />
    )
  return (
    <fieldset className="series-choice">
      <legend>Series</legend>
      {rows.map((one) => (
        <Check
          key={one.key}
          checked={chosen.has(one.key)}
          onChange={(isChosen) =>
            onChange({
              series: rows
                .filter(({ key }) => (key === one.key ? isChosen : chosen.has(key)))
                .slice(0, MAX_CHOSEN)
                .map(fieldsOf),
            })
          }
        >
          <bdi>{labelOf(one)}</bdi>
        </Check>
      ))}
    </fieldset>
  )
}

const fieldsOf = ({ publisher, subtopic, name, unit }: Series) => ({ publisher, subtopic, name, unit })
