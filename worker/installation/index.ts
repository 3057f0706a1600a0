export { awaitJoin } from './await-join.ts'
export { DRAIN_SIGNAL, drainWorker } from './drain.ts'
export { install } from './install.ts'
export { goBack, upgrade } from './upgrade.ts'
