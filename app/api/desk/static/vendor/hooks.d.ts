export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useCallback<T>(callback: T, inputs: unknown[]): T;
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
