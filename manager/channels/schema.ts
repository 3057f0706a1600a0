/** Wire shapes of replays (task-manager.md section 5). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { LETTER_SOURCES } from '#queues/index.ts'
import { TaskId, Timestamp } from '../tasks/schema.ts'
import type { ShownLetter } from './letters-service.ts'

export const NewReplay = Type.Object(
  {
    channel_id: Type.String({ maxLength: 36, description: 'Channel of the domain of the task' }),
    from: Type.Number({ description: 'Seconds since 1970, inclusive' }),
    to: Type.Number({ description: 'Seconds since 1970, exclusive' }),
  },
  { $id: 'ReplayCreate' },
)
export type NewReplay = Static<typeof NewReplay>

export const Replay = Type.Object({ replay_id: TaskId }, { $id: 'Replay' })

const Source = Type.Enum([...LETTER_SOURCES], {
  description: 'message: no run could be started for it; publication: no channel took it',
})

export const LettersQuery = Type.Object({ ...pageQuery(), source: Type.Optional(Source) })

const TaskLetter = Type.Object(
  {
    id: TaskId,
    source: Source,
    reason: Type.String({ description: 'Why it was given up' }),
    at: Timestamp,
    created_at: Type.String({ description: 'RFC 3339 in UTC: when it was queued' }),
    channel_id: Type.String({ description: 'Channel of the message, or of the publication' }),
    subtopic: Type.String(),
    run_id: Type.Optional(Type.String({ description: 'Run that published it' })),
    records: Type.Optional(
      Type.Array(Type.Unknown(), {
        description: 'SenML records; absent for a caller who may not subscribe to the channel',
      }),
    ),
  },
  {
    $id: 'TaskDeadLetter',
    description: 'A message or publication of a task that was given up. It is kept for 30 days.',
  },
)

export const TaskLetterPage = Type.Object(
  { ...pageFields, dead_letters: Type.Array(TaskLetter) },
  { $id: 'TaskDeadLetterPage' },
)

export function presentLetter(letter: ShownLetter): Static<typeof TaskLetter> {
  const { content, run_id: runId } = letter
  const records = content === undefined ? undefined : 'records' in content ? content.records : content
  return {
    id: letter.id,
    source: letter.source,
    reason: letter.reason,
    at: formatTime(letter.refused_at),
    created_at: formatTime(letter.created_at),
    channel_id: letter.channel_id,
    subtopic: letter.subtopic,
    ...(runId === null ? {} : { run_id: runId }),
    ...(records === undefined ? {} : { records: [...records] }),
  }
}
