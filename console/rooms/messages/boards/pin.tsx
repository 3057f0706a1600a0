/** Pins what a chart shows to a board. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Button, SelectField, TextField } from '../../../design/controls.tsx'
import { Skeleton } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { InputError, useFormAction } from '../../../shell/action.ts'
import { ErrorState } from '../../../shell/states.tsx'
import type { NamedSeries } from '../charts/series.ts'
import { EMPTY_BOARD, newTile } from './content.ts'
import type { Tile } from './content.ts'
import { addTile, boardsQuery, createBoard } from './store.ts'

type PinProps = {
  domain: string
  channel: string
  unit: string
  series: readonly NamedSeries[]
  /** The range of a board that is made for it. */
  quick: string | undefined
}

export function PinButton(props: PinProps) {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <Button kind="quiet" icon="pin" label="Pin to a board" onClick={() => setOpen(true)} />
      {isOpen ? <PinDialog {...props} onClose={() => setOpen(false)} /> : null}
    </>
  )
}

const NEW = ''

function PinDialog({ domain, channel, unit, series, quick, onClose }: PinProps & { onClose: () => void }) {
  const boards = useQuery(boardsQuery(domain))
  const own = (boards.data?.dashboards ?? []).filter((board) => board.own)
  const [chosen, setChosen] = useState<string>()
  const board = chosen ?? own[0]?.id ?? NEW
  const [name, setName] = useState('')
  const [title, setTitle] = useState(titleOf(series, unit))
  const pin = useFormAction(
    'The chart was not pinned',
    async () => {
      const fields = series.map(({ publisher, subtopic, name: its, unit: theirs }) => ({
        publisher,
        subtopic,
        name: its,
        unit: theirs,
      }))
      const tile = newTile({ kind: 'chart', title: title.trim(), channel, series: fields })
      const pinnedTo = await pinTo(domain, { id: board, name: name.trim() }, tile, quick)
      return `Pinned to ${pinnedTo ?? own.find(({ id }) => id === board)?.name ?? 'the board'}`
    },
    onClose,
  )
  return (
    <FormDialog title="Pin to a board" submit="Pin" action={pin} onClose={onClose}>
      {boards.error !== null ? (
        <ErrorState error={boards.error} />
      ) : boards.data === undefined ? (
        <Skeleton rows={2} />
      ) : (
        <>
          <SelectField
            label="Board"
            field="board"
            value={board}
            onChange={setChosen}
            options={[...own.map((one): [string, string] => [one.id, one.name]), [NEW, 'A new board']]}
          />
          {board === NEW ? (
            <TextField label="Name of the new board" field="name" value={name} onChange={setName} required />
          ) : null}
          <TextField label="Title of the chart" field="title" value={title} onChange={setTitle} />
        </>
      )}
    </FormDialog>
  )
}

/** Returns the name of a board that was made for it. */
async function pinTo(
  domain: string,
  board: { id: string; name: string },
  tile: Tile,
  quick: string | undefined,
): Promise<string | undefined> {
  if (board.id !== NEW) {
    await addTile(domain, board.id, tile)
    return undefined
  }
  if (board.name === '') throw new InputError('name', 'Enter a name')
  await createBoard(domain, board.name, { range: quick ?? EMPTY_BOARD.range, tiles: [tile] })
  return board.name
}

function titleOf(series: readonly NamedSeries[], unit: string): string {
  const names = [...new Set(series.map(({ name }) => name))]
  return `${names.slice(0, 3).join(', ')}${names.length > 3 ? ' and others' : ''}${unit === '' ? '' : ` (${unit})`}`
}
