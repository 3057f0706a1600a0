/** The streams of the log of a run. */
/** Their numbers in `run_logs` count from 1. */
export const LOG_STREAMS = ['stdout', 'stderr', 'http'] as const
export type LogStreamNumber = 1 | 2 | 3

export const numberOfStream = (name: (typeof LOG_STREAMS)[number]): LogStreamNumber =>
  name === 'stdout' ? 1 : name === 'stderr' ? 2 : 3
