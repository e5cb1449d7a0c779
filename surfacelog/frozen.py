"""Dicts and lists that raise when they are changed; otherwise they are dicts and lists."""

import copy
from typing import Any, NoReturn

__all__ = ["FrozenDict", "FrozenList", "freeze"]


def _raise(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("a derived message is shared and cannot be changed; copy it first")


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed; `copy` and `deepcopy` give ordinary ones."""

    __slots__ = ()
    __init__ = __setitem__ = __delitem__ = __ior__ = _raise
    clear = pop = popitem = setdefault = update = _raise

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class FrozenList(list[Any]):
    """A list that cannot be changed; `copy` and `deepcopy` give ordinary ones."""

    __slots__ = ()
    __init__ = __setitem__ = __delitem__ = __iadd__ = __imul__ = _raise
    append = extend = insert = pop = remove = clear = sort = reverse = _raise

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy.deepcopy(list(self), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def freeze(value: Any) -> Any:
    """The JSON value with every container in it frozen; the value itself stays as it is. No recursion."""
    root: list[Any] = [value]
    work: list[tuple[Any, Any]] = [(FrozenList.__new__(FrozenList), root)]
    top = work[0][0]
    while work:
        frozen, source = work.pop()
        if type(source) is dict:
            for key, item in source.items():
                dict.__setitem__(frozen, key, _shell(item, work))
        else:
            for item in source:
                list.append(frozen, _shell(item, work))
    return top[0]


def _shell(item: Any, work: list[tuple[Any, Any]]) -> Any:
    if type(item) is dict:
        shell: Any = FrozenDict.__new__(FrozenDict)
    elif type(item) is list:
        shell = FrozenList.__new__(FrozenList)
    else:
        return item
    work.append((shell, item))
    return shell
