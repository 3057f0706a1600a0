/** States of tasks, runs and workflows: a number on the wire, icon, word and colour here. */
import { State } from '../design/display.tsx'
import type { Tone } from '../design/display.tsx'
import type { IconName } from '../design/icon.tsx'

const STATES: Readonly<Record<number, { word: string; tone: Tone; icon?: IconName }>> = {
  0: { word: 'Pending', tone: 'idle', icon: 'wait' },
  1: { word: 'Scheduled', tone: 'active', icon: 'wait' },
  2: { word: 'Running', tone: 'active', icon: 'active' },
  3: { word: 'Completed', tone: 'ok' },
  4: { word: 'Failed', tone: 'bad' },
  5: { word: 'Skipped', tone: 'idle' },
  6: { word: 'Stopped', tone: 'idle', icon: 'stop' },
  7: { word: 'Unknown', tone: 'warn' },
}

export const stateWord = (state: number) => STATES[state]?.word ?? `State ${state}`
export const isEnded = (state: number) => state >= 3 && state !== 7

export function TaskState({ state }: { state: number }) {
  const { word, tone, icon } = STATES[state] ?? { word: stateWord(state), tone: 'idle' as const }
  return (
    <State tone={tone} {...(icon === undefined ? {} : { icon })}>
      {word}
    </State>
  )
}

/** The mark of a run that its worker started without a task manager. */
export function RanOffline({ run }: { run: { ran_offline?: boolean } }) {
  return run.ran_offline === true ? <span className="tag">offline</span> : null
}

const ACTIVITIES = {
  active: { word: 'Active', tone: 'ok' },
  paused: { word: 'Paused', tone: 'warn' },
  failing: { word: 'Failing', tone: 'bad' },
} as const satisfies Readonly<Record<string, { word: string; tone: Tone }>>

/** A task that messages or a schedule start has an activity, and the state of its last start says nothing about it. */
export function TaskActivity({ state, activity }: { state: number; activity?: keyof typeof ACTIVITIES | undefined }) {
  if (activity === undefined) return <TaskState state={state} />
  const { word, tone } = ACTIVITIES[activity]
  return <State tone={tone}>{word}</State>
}
