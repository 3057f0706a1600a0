/** The commands to clients that a task answers instead of them. */
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Task } from '../../api/operations.ts'
import { TextField } from '../../design/controls.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { OneEntity } from '../../shell/entity-choice.tsx'
import { ClientName, GroupName } from '../../shell/names.tsx'

export function AnsweredCommands({ task: { answers }, domain }: { task: Pick<Task, 'answers'>; domain: string }) {
  if (answers === undefined) return null
  const { command, client_id: client, group, tag } = answers
  const isForAll = client === undefined && group === undefined && tag === undefined
  return (
    <span>
      <code>{command}</code> to {isForAll ? 'all clients' : 'clients'}
      {client === undefined ? null : (
        <>
          {' with the id of '}
          <ClientName domain={domain} id={client} />
        </>
      )}
      {group === undefined ? null : (
        <>
          {' in '}
          <GroupName domain={domain} id={group} />
        </>
      )}
      {tag === undefined ? null : ` with the tag ${tag}`}
    </span>
  )
}

export function AnswersDialog({
  task,
  domain,
  onClose,
}: {
  task: Pick<Task, 'id' | 'answers'>
  domain: string
  onClose: () => void
}) {
  const { answers } = task
  const [command, setCommand] = useState(answers?.command ?? '')
  const [tag, setTag] = useState(answers?.tag ?? '')
  const [group, setGroup] = useState(answers?.group ?? '')
  const [client, setClient] = useState(answers?.client_id ?? '')
  const save = useFormAction(
    'The commands were not saved',
    async () => {
      const selected = {
        ...(tag === '' ? {} : { tag }),
        ...(group === '' ? {} : { group }),
        ...(client === '' ? {} : { client_id: client }),
      }
      await call('PUT /tasks/{task_id}', {
        params: { task_id: task.id },
        body: { answers: command === '' ? null : { command, ...selected } },
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Commands" submit="Save" action={save} onClose={onClose}>
      <TextField
        label="Answer commands named"
        field="answers.command"
        value={command}
        onChange={setCommand}
        maxLength={64}
        hint="The task runs instead of the device, and its result is that of the command. Empty: none"
      />
      <TextField
        label="To clients with the tag"
        field="answers.tag"
        value={tag}
        onChange={setTag}
        hint="Empty: whatever their tags"
      />
      <OneEntity
        type="group"
        domain={domain}
        label="To clients in the group"
        field="answers.group"
        id={group}
        onChange={setGroup}
        hint="None chosen: in any group, or in none"
      />
      <OneEntity
        type="client"
        domain={domain}
        label="To the client"
        field="answers.client_id"
        id={client}
        onChange={setClient}
        hint="None chosen: to all of them"
      />
    </FormDialog>
  )
}
