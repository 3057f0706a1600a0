/** Why a run was started. Stored with the run as it is shown. */
export const CAUSES = ['user', 'message', 'replay', 'schedule', 'workflow', 'command'] as const
export type CauseType = (typeof CAUSES)[number]

export type RunCause =
  /** `user_id` is absent if the caller needed no token. */
  | { type: 'user'; user_id?: string }
  /** `message` identifies the message in the log: its batch, and its number in the batch. If there are several (`messages`), it is the first. */
  | { type: 'message'; channel_id: string; message: string; messages?: number }
  | { type: 'replay'; channel_id: string; replay_id: string }
  /** `tick`: the time of the schedule, which may be earlier than the start. */
  | { type: 'schedule'; tick: string }
  | { type: 'workflow'; workflow_id: string; workflow_run_id: string }
  /** The run has the id of the command. */
  | { type: 'command'; client_id: string; command: string }

/** Origins of queued messages: `message <batch>/<number>`, and `replay <id> <time> <offset>`. */
export function causeOfMessage(origin: string, channelId: string): RunCause {
  const [kind, id = ''] = origin.split(' ')
  return kind === 'replay'
    ? { type: 'replay', channel_id: channelId, replay_id: id }
    : { type: 'message', channel_id: channelId, message: id }
}

export function userCause(caller: { readonly id: string } | undefined): RunCause {
  return caller === undefined ? { type: 'user' } : { type: 'user', user_id: caller.id }
}
