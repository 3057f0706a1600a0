export { Trials } from './trials.ts'
export type { TrialCall, TrialReport, TriedModule } from './trials.ts'
export { changesOf } from './changes.ts'
export type { ChannelRules, TriedRecord } from './guest-channel.ts'
