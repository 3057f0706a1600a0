export { MAX_HINT_BYTES } from './bus.ts'
export type { Bus, BusHandler } from './bus.ts'
export { createLocalBus } from './local.ts'
export { createRedisBus } from './redis.ts'
