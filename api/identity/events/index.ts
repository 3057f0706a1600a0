export { startEvents } from './events.ts'
export type { Events, EventsOptions } from './events.ts'
