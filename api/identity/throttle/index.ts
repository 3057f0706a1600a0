export { networkOf } from './address.ts'
export { isKnownAddress, purgeKnownAddresses, rememberAddress } from './known-addresses.ts'
export { RULES, LoginThrottle, guessRules } from './login-throttle.ts'
export type { Admission } from './login-throttle.ts'
