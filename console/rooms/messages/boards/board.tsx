/** One board: its tiles, their arrangement by its owner, and the whole screen for a wall. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import './boards.css'
import { Button, Menu, SelectField, TextField } from '../../../design/controls.tsx'
import { Card, Empty, Notice } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { useAction, useFormAction } from '../../../shell/action.ts'
import { Confirm } from '../../../shell/confirm.tsx'
import { UserName } from '../../../shell/names.tsx'
import { QueryView } from '../../../shell/states.tsx'
import { useDomainId, useParam } from '../../../shell/url.ts'
import { preparePlot } from '../charts/chart.tsx'
import { RangeBar } from '../charts/range-bar.tsx'
import { RANGES } from '../charts/ranges.ts'
import { useRange } from '../charts/use-range.ts'
import { COLUMNS, MAX_TILES, moved, parseBoard, withTile, withoutTile } from './content.ts'
import type { Board, Tile } from './content.ts'
import { boardQuery, changeBoard, createBoard, deleteBoard } from './store.ts'
import type { StoredBoard } from './store.ts'
import { TileForm } from './tile-form.tsx'
import { TileView } from './tiles.tsx'

export function BoardScreen() {
  const domain = useDomainId()
  const id = useParam('id')
  const result = useQuery(boardQuery(domain, id))
  useEffect(preparePlot, [])
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Board'} · Skein`
  }, [result.data?.name])
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {(stored) => <OpenBoard key={stored.id} domain={domain} stored={stored} />}
    </QueryView>
  )
}

function OpenBoard({ domain, stored }: { domain: string; stored: StoredBoard }) {
  const saved = parseBoard(stored.content)
  /** What is not stored yet, while the owner arranges the board. */
  const [draft, setDraft] = useState<Board>()
  const [edited, setEdited] = useState<Tile | 'new'>()
  const board = draft ?? saved
  const range = useRange(0, { byDefault: saved.range })
  const wall = useRef<HTMLDivElement>(null)
  const [save, isSaving] = useAction('The board was not saved', async (next: Board) => {
    await changeBoard(domain, stored.id, { board: next })
    setDraft(undefined)
    return 'Saved'
  })
  const isFull = board.tiles.length >= MAX_TILES
  const add = (
    <Button
      icon="plus"
      onClick={() => setEdited('new')}
      disabledReason={isFull ? `A board has at most ${MAX_TILES} tiles` : undefined}
    >
      Add tile
    </Button>
  )
  return (
    <>
      <BoardHead domain={domain} stored={stored}>
        {draft === undefined ? (
          <>
            {stored.own ? add : null}
            {stored.own && saved.tiles.length > 0 ? (
              <Button icon="settings" onClick={() => setDraft(saved)}>
                Arrange
              </Button>
            ) : null}
            <Button icon="full" onClick={() => void wall.current?.requestFullscreen()}>
              Full screen
            </Button>
          </>
        ) : (
          <>
            <Button onClick={() => setDraft(undefined)}>Cancel</Button>
            <Button kind="primary" busy={isSaving} onClick={() => void save(draft)}>
              Save
            </Button>
          </>
        )}
      </BoardHead>
      <RangeBar range={range} />
      {board.tiles.length === 0 ? (
        <Card>
          <Empty icon="dashboard" title="This board is empty" actions={stored.own ? add : null}>
            Add tiles here, or pin a chart on the page of a channel.
          </Empty>
        </Card>
      ) : (
        <div className="board" ref={wall}>
          <h2 className="board-name">{stored.name}</h2>
          {board.tiles.map((tile, place) => (
            <TileView
              key={tile.id}
              domain={domain}
              tile={tile}
              range={range}
              {...(draft === undefined
                ? {}
                : {
                    tools: (
                      <ArrangeTools
                        tile={tile}
                        place={place}
                        count={board.tiles.length}
                        onMove={(by) => setDraft(moved(board, tile.id, by))}
                        onChange={(next) => setDraft(withTile(board, next))}
                        onEdit={() => setEdited(tile)}
                        onRemove={() => setDraft(withoutTile(board, tile.id))}
                      />
                    ),
                    onDrop: (dropped) => setDraft(moved(board, dropped, place - placeOf(board, dropped))),
                  })}
            />
          ))}
        </div>
      )}
      {edited === undefined ? null : (
        <TileForm
          domain={domain}
          tile={edited === 'new' ? undefined : edited}
          onClose={() => setEdited(undefined)}
          onDone={async (tile) => {
            if (draft === undefined) await changeBoard(domain, stored.id, { board: withTile(saved, tile) })
            else setDraft(withTile(draft, tile))
          }}
        />
      )}
    </>
  )
}

const placeOf = ({ tiles }: Board, id: string) => tiles.findIndex((tile) => tile.id === id)

function ArrangeTools({
  tile,
  place,
  count,
  onMove,
  onChange,
  onEdit,
  onRemove,
}: {
  tile: Tile
  place: number
  count: number
  onMove: (by: number) => void
  onChange: (tile: Tile) => void
  onEdit: () => void
  onRemove: () => void
}) {
  const resized = (by: number) => onChange({ ...tile, width: tile.width + by })
  return (
    <div className="row wrap" role="group" aria-label={`Arrange ${tile.title}`}>
      <Button
        small
        icon="left"
        label="Move earlier"
        onClick={() => onMove(-1)}
        disabledReason={place === 0 ? 'It is the first tile' : undefined}
      />
      <Button
        small
        icon="right"
        label="Move later"
        onClick={() => onMove(1)}
        disabledReason={place === count - 1 ? 'It is the last tile' : undefined}
      />
      <Button
        small
        icon="minus"
        label="Narrower"
        onClick={() => resized(-1)}
        disabledReason={tile.width === 1 ? 'It takes one column' : undefined}
      />
      <Button
        small
        icon="plus"
        label="Wider"
        onClick={() => resized(1)}
        disabledReason={tile.width === COLUMNS ? 'It takes all columns' : undefined}
      />
      <Button small onClick={onEdit}>
        Edit
      </Button>
      <Button small icon="trash" kind="danger" label="Remove tile" onClick={onRemove} />
    </div>
  )
}

function BoardHead({ domain, stored, children }: { domain: string; stored: StoredBoard; children: React.ReactNode }) {
  const navigate = useNavigate()
  const [dialog, setDialog] = useState<'edit' | 'delete'>()
  const [share] = useAction('Sharing was not changed', async () => {
    await changeBoard(domain, stored.id, { shared: !stored.shared })
    return stored.shared ? 'Only you see this board now' : 'Members of the domain see this board now'
  })
  const [copy] = useAction('The board was not copied', async () => {
    const { id } = await createBoard(domain, `${stored.name} (copy)`, parseBoard(stored.content))
    await navigate({ to: paths.board(domain, id) })
    return 'This copy is yours'
  })
  const remove = useFormAction('The board was not deleted', async () => {
    await deleteBoard(domain, stored.id)
    await navigate({ to: paths.boards(domain) })
    return 'The board is deleted'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        <bdi>{stored.name}</bdi>
      </h1>
      {stored.shared ? <span className="tag">shared</span> : null}
      {stored.own ? null : (
        <span className="muted">
          of <UserName id={stored.owner_id} />
        </span>
      )}
      <span className="grow" />
      {children}
      <Menu
        label="More actions"
        icon="more"
        items={[
          ...(stored.own
            ? [
                {
                  label: stored.shared ? 'Stop sharing' : 'Share in the domain',
                  icon: 'members' as const,
                  onSelect: () => void share(),
                },
                { label: 'Settings', icon: 'settings' as const, onSelect: () => setDialog('edit') },
              ]
            : []),
          { label: 'Copy', icon: 'copy', onSelect: () => void copy() },
          'line',
          {
            label: 'Delete',
            icon: 'trash',
            isDanger: true,
            onSelect: () => setDialog('delete'),
          },
        ]}
      />
      {dialog === 'edit' ? <EditBoard domain={domain} stored={stored} onClose={() => setDialog(undefined)} /> : null}
      {dialog === 'delete' ? (
        <Confirm
          title={`Delete ${stored.name}`}
          submit="Delete board"
          action={remove}
          onClose={() => setDialog(undefined)}
        >
          {stored.own
            ? 'Members who see it lose it too. The data that it shows stays. This cannot be undone.'
            : 'Only its owner and administrators of the domain can delete it. This cannot be undone.'}
        </Confirm>
      ) : null}
    </div>
  )
}

function EditBoard({ domain, stored, onClose }: { domain: string; stored: StoredBoard; onClose: () => void }) {
  const board = parseBoard(stored.content)
  const [name, setName] = useState(stored.name)
  const [range, setRange] = useState(board.range)
  const save = useFormAction(
    'The board was not changed',
    async () => {
      await changeBoard(domain, stored.id, { name: name.trim(), board: { ...board, range } })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Settings of the board" submit="Save" action={save} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} required />
      <SelectField
        label="Range"
        value={range}
        onChange={setRange}
        options={Object.keys(RANGES).map((key): [string, string] => [key, `the last ${key}`])}
        hint="Shown when the board is opened"
      />
      {stored.shared ? <Notice tone="ok">Members of the domain see this board.</Notice> : null}
    </FormDialog>
  )
}
