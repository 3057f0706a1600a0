export { MAX_HINT_BYTES } from './bus.ts'
export type { Bus, BusHandler } from './bus.ts'
export { connectBus } from './connect.ts'
export { createLocalBus } from './local.ts'
