/** Wire shapes of replays (task-manager.md section 5). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { TaskId } from '../tasks/schema.ts'

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
