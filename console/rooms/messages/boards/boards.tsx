/** The boards of a domain: those of the user, and those that others share. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { Button, TextField } from '../../../design/controls.tsx'
import { Card, Empty, Time } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { useFormAction } from '../../../shell/action.ts'
import { UserName } from '../../../shell/names.tsx'
import { QueryView } from '../../../shell/states.tsx'
import { useDomainId } from '../../../shell/url.ts'
import { EMPTY_BOARD } from './content.ts'
import { boardsQuery, createBoard } from './store.ts'

export function Boards() {
  const domain = useDomainId()
  const [isCreating, setCreating] = useState(false)
  const boards = useQuery(boardsQuery(domain))
  useEffect(() => {
    document.title = 'Boards · Skein'
  }, [])
  const create = (
    <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>
      New board
    </Button>
  )
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Boards</h1>
        {create}
      </div>
      <QueryView result={boards} entity={`domain:${domain}`}>
        {({ dashboards }) => (
          <Card flush>
            {dashboards.length === 0 ? (
              <Empty icon="dashboard" title="Create your first board" actions={create}>
                A board shows charts, values and states of several channels side by side. A chart of a channel is pinned
                to it with one button.
              </Empty>
            ) : (
              dashboards.map((board) => (
                <Link key={board.id} className="list-row" to={paths.board(domain, board.id)}>
                  <div className="grow">
                    <strong>
                      <bdi>{board.name}</bdi>
                    </strong>
                    <div className="muted small">
                      {board.own ? 'yours' : <UserName id={board.owner_id} />}, changed{' '}
                      <Time at={board.updated_at.startsWith('0001') ? board.created_at : board.updated_at} />
                    </div>
                  </div>
                  {board.shared ? <span className="tag">shared</span> : null}
                </Link>
              ))
            )}
          </Card>
        )}
      </QueryView>
      {isCreating ? <NewBoard domain={domain} onClose={() => setCreating(false)} /> : null}
    </>
  )
}

function NewBoard({ domain, onClose }: { domain: string; onClose: () => void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const create = useFormAction('The board was not created', async () => {
    const { id } = await createBoard(domain, name.trim(), EMPTY_BOARD)
    await navigate({ to: paths.board(domain, id) })
  })
  return (
    <FormDialog title="New board" submit="Create board" action={create} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} required />
    </FormDialog>
  )
}
