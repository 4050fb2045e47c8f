# find_package(filch) defines filch::filch (shared) and filch::static; with Lua also filch::lua_shared and filch::lua (static).
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/filchTargets.cmake)
