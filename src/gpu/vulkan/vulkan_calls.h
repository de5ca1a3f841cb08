/* vulkan_calls.h: the functions of the loader that the backend calls, by what they need first. */
#ifndef GPU_VULKAN_VULKAN_CALLS_H
#define GPU_VULKAN_VULKAN_CALLS_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#define VULKAN_GLOBAL_CALLS(C)                                                                     \
    C(CreateInstance)                                                                              \
    C(EnumerateInstanceVersion)

#define VULKAN_INSTANCE_CALLS(C)                                                                   \
    C(EnumeratePhysicalDevices)                                                                    \
    C(EnumerateDeviceExtensionProperties)                                                          \
    C(GetPhysicalDeviceProperties2)                                                                \
    C(GetPhysicalDeviceFeatures2)                                                                  \
    C(GetPhysicalDeviceMemoryProperties2)                                                          \
    C(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    C(CreateDevice)                                                                                \
    C(GetDeviceProcAddr)

#define VULKAN_DEVICE_CALLS(C)                                                                     \
    C(DestroyDevice)                                                                               \
    C(GetDeviceQueue)                                                                              \
    C(QueueSubmit)                                                                                 \
    C(DeviceWaitIdle)                                                                              \
    C(AllocateMemory)                                                                              \
    C(FreeMemory)                                                                                  \
    C(MapMemory)                                                                                   \
    C(CreateBuffer)                                                                                \
    C(DestroyBuffer)                                                                               \
    C(BindBufferMemory)                                                                            \
    C(GetBufferMemoryRequirements)                                                                 \
    C(GetBufferDeviceAddress)                                                                      \
    C(CreateSemaphore)                                                                             \
    C(DestroySemaphore)                                                                            \
    C(GetSemaphoreCounterValue)                                                                    \
    C(WaitSemaphores)                                                                              \
    C(CreateCommandPool)                                                                           \
    C(DestroyCommandPool)                                                                          \
    C(AllocateCommandBuffers)                                                                      \
    C(FreeCommandBuffers)                                                                          \
    C(BeginCommandBuffer)                                                                          \
    C(EndCommandBuffer)                                                                            \
    C(CreateShaderModule)                                                                          \
    C(DestroyShaderModule)                                                                         \
    C(CreatePipelineLayout)                                                                        \
    C(DestroyPipelineLayout)                                                                       \
    C(CreatePipelineCache)                                                                         \
    C(DestroyPipelineCache)                                                                        \
    C(GetPipelineCacheData)                                                                        \
    C(CreateComputePipelines)                                                                      \
    C(DestroyPipeline)                                                                             \
    C(CreateQueryPool)                                                                             \
    C(DestroyQueryPool)                                                                            \
    C(GetQueryPoolResults)                                                                         \
    C(CmdBindPipeline)                                                                             \
    C(CmdPushConstants)                                                                            \
    C(CmdDispatch)                                                                                 \
    C(CmdPipelineBarrier)                                                                          \
    C(CmdCopyBuffer)                                                                               \
    C(CmdFillBuffer)                                                                               \
    C(CmdCopyQueryPoolResults)                                                                     \
    C(CmdResetQueryPool)                                                                           \
    C(CmdWriteTimestamp)

typedef struct vulkan_calls {
#define VULKAN_MEMBER(name) PFN_vk##name name;
    VULKAN_GLOBAL_CALLS(VULKAN_MEMBER)
    VULKAN_INSTANCE_CALLS(VULKAN_MEMBER)
    VULKAN_DEVICE_CALLS(VULKAN_MEMBER)
#undef VULKAN_MEMBER
} vulkan_calls;

#endif
